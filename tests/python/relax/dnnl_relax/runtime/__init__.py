# SPDX-License-Identifier: Apache-2.0
"""The runtime module: its memory, libraries, threads and shapes."""
