# SPDX-License-Identifier: Apache-2.0
"""What is fused into one composite, and that it computes the same."""
