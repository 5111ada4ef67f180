# SPDX-License-Identifier: Apache-2.0
"""The conformance cases of ONNX."""
