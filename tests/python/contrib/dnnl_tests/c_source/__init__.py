# SPDX-License-Identifier: Apache-2.0
"""The C source that the other codegen writes: compiled, deployed, and its errors."""
