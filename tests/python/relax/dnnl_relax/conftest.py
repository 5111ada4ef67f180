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
"""What plain `pytest` sets as `./dev.py test` does: an op that cannot be written is a failure."""

import os
from pathlib import Path

os.environ.setdefault("TVM_DNNL_STRICT", "1")
# Processes that tests start import the modules of the tests, too.
_TESTS = Path(__file__).resolve().parents[2]
_PLACES = [_TESTS / "relax", _TESTS / "contrib", os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(str(place) for place in _PLACES if place)
