# SPDX-License-Identifier: Apache-2.0
"""The backend in TVM's own tools: tvmc, the profiler, options of the target."""
