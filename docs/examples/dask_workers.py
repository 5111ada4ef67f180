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
"""Dask: two workers, each a process with the model loaded once; requests go to whoever is free."""

import functools
import sys

import numpy as np
from dask.distributed import Client, LocalCluster


@functools.cache
def executor(path):
    """Load the model, once in each worker."""
    import tvm  # not before: a worker starts without TVM
    from tvm.contrib import graph_executor

    return graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))


def infer(path, name, request):
    """Run one request in a worker."""
    model = executor(path)
    model.run(**{name: request})
    return model.get_output(0).numpy()


def main():
    """Start the workers, spread the requests, and compare with a run in this process."""
    path, name, shape = sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3].split(",")]
    requests = list(np.random.default_rng(0).standard_normal((8, *shape), "float32"))
    # One thread for each worker, as an executor serves one request at a time. For workers on other
    # machines, connect to their scheduler: Client("tcp://HOST:8786").
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        futures = client.map(functools.partial(infer, path, name), requests)
        results = client.gather(futures)
    expected = [infer(path, name, request) for request in requests]
    np.testing.assert_array_equal(results, expected)
    print(f"2 workers gave the same {len(results)} results as this process")


if __name__ == "__main__":
    main()
