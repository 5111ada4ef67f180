# SPDX-License-Identifier: Apache-2.0
"""The rules, the options and the structure of what `partition_for_dnnl` makes."""
