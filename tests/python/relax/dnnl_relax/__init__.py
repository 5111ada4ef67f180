# SPDX-License-Identifier: Apache-2.0
"""Tests of oneDNN in Relax, the plug-in or a TVM tree with it.

The package has a name of its own because TVM's tests are in the same folder, and because the tests
in `onnx` and `torch` import packages of these names. Modules that are no tests are helpers.
"""
