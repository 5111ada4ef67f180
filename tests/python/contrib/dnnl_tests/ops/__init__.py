# SPDX-License-Identifier: Apache-2.0
"""Ops in chains, layouts and variants, at special values, and what is refused."""
