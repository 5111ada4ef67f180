# SPDX-License-Identifier: Apache-2.0
"""Partitioning: rewrites, reasons, failures, options."""
