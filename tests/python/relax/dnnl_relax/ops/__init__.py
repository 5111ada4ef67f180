# SPDX-License-Identifier: Apache-2.0
"""Each op: what is offloaded, what is refused, and the results."""
