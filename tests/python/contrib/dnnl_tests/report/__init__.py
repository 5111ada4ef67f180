# SPDX-License-Identifier: Apache-2.0
"""The offload report, its page, and the table of ops."""
