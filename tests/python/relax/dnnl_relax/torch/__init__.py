# SPDX-License-Identifier: Apache-2.0
"""Programs of PyTorch: exported, or compiled by `torch.compile`."""
