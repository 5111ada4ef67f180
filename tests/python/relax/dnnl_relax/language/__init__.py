# SPDX-License-Identifier: Apache-2.0
"""Language models: attention caches, prompts and tokens."""
