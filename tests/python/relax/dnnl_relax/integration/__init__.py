# SPDX-License-Identifier: Apache-2.0
"""The API around the partitioner: compile, cache and verify."""
