# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""What several tests of the tools use."""

import shutil

import pytest

from scripts.layout import ROOT, Layout


@pytest.fixture
def network():
    """Return a convolution and a relu, whose batch is open."""
    from dnnl_tests.models import onnx_networks, open_dims

    net = onnx_networks.Network("small", ("batch", 3, 8, 8))
    model = net.model(net.op("Relu", net.conv("x", 3, 8, 3)), ("batch", 8, 8, 8))
    shapes = [(1, 3, 8, 8), (2, 3, 8, 8)]
    return open_dims.OpenNetwork("mobilenet_v2", "Small", lambda: model, shapes)


@pytest.fixture
def layout(tmp_path):
    """Return a checkout of its own, with the real requirements and a small overlay."""
    for name in ("requirements", "patches"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "python/tvm").mkdir(parents=True)
    (tmp_path / "python/tvm/a.py").write_text("ours")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cc").write_text("int a;")
    return Layout(tmp_path)
