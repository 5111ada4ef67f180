# SPDX-License-Identifier: Apache-2.0
"""Real networks: how to get them, and what they compute on oneDNN."""
