# SPDX-License-Identifier: Apache-2.0
"""Changes of the graph before it is partitioned: what they do, and where they must not."""
