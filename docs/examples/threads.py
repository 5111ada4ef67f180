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
"""One library, several threads: each has an executor of its own, all share the plans."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tvm
from tvm.contrib import graph_executor

lib = tvm.runtime.load_module(sys.argv[1])
name, shape = sys.argv[2], [int(size) for size in sys.argv[3].split(",")]
requests = np.random.default_rng(0).standard_normal((12, *shape), "float32")


def serve(part):
    """Run the requests of one thread; return their results."""
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    results = []
    for request in part:
        executor.run(**{name: request})
        results.append(executor.get_output(0).numpy())
    return results


alone = serve(requests)
with ThreadPoolExecutor(4) as pool:
    parts = list(pool.map(serve, np.split(requests, 4)))
together = [result for part in parts for result in part]
np.testing.assert_array_equal(together, alone)
print(f"4 threads gave the same {len(together)} results as one")
