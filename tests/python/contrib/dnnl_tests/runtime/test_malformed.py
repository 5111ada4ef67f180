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
"""A JSON graph from a damaged or hostile file is an error that names what is wrong, not a crash.

`./dev.py fuzz --gate` damages graphs at random.
"""

import json

import pytest
import tvm

from dnnl_tests import small_graph as small
from dnnl_tests.malformed import MUTATIONS, NAMES, TEXTS
from dnnl_tests.marks import json_only

pytestmark = json_only


@pytest.mark.parametrize("change, message", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_mutation(change, message):
    graph = small.graph()
    change(graph)
    with pytest.raises(tvm.TVMError) as error:
        small.create(json.dumps(graph))
    assert message in str(error.value)
    assert small.parts()[0] in str(error.value)


@pytest.mark.parametrize("change", TEXTS.values(), ids=TEXTS.keys())
def test_text_that_is_no_graph(change):
    with pytest.raises(tvm.TVMError, match="cannot be read") as error:
        small.create(change(small.parts()[1]))
    assert small.parts()[0] in str(error.value)


@pytest.mark.parametrize("names, message", NAMES.values(), ids=NAMES.keys())
def test_names_of_constants(names, message):
    with pytest.raises(tvm.TVMError, match=message):
        small.create(small.parts()[1], names(small.parts()[2]))
