# SPDX-License-Identifier: Apache-2.0
"""ONNX models: what is converted, repaired or refused, and the results of the reference."""
