# SPDX-License-Identifier: Apache-2.0
"""Calls of the ops of PyTorch's core ATen set."""
