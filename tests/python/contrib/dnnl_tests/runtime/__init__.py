# SPDX-License-Identifier: Apache-2.0
"""The module of a partition at run time: plan, memory, threads, damaged graphs."""
