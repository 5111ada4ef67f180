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
"""Ray: two workers, each a process with the model loaded once; requests go to whoever is free."""

import sys

import numpy as np
import ray
from ray.util import ActorPool


class Model:
    """A model, loaded from a library."""

    def __init__(self, path):
        import tvm  # not before: only a worker has TVM loaded
        from tvm.contrib import graph_executor

        library = tvm.runtime.load_module(path)
        self.executor = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def infer(self, name, request):
        """Run one request."""
        self.executor.run(**{name: request})
        return self.executor.get_output(0).numpy()


def workers(path, count=2):
    """Start workers; one that dies is started again, and its request is run again."""
    remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=3)(Model)
    return [remote.remote(path) for _ in range(count)]


def main():
    """Start the workers, spread the requests, and compare with a run in this process."""
    path, name, shape = sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3].split(",")]
    requests = list(np.random.default_rng(0).standard_normal((8, *shape), "float32"))
    # For workers on other machines, connect to their head: ray.init(address="ray://HOST:10001").
    ray.init(num_cpus=2, include_dashboard=False)
    pool = ActorPool(workers(path))
    # In the order of the requests.
    results = list(pool.map(lambda worker, request: worker.infer.remote(name, request), requests))
    ray.shutdown()
    model = Model(path)
    np.testing.assert_array_equal(results, [model.infer(name, request) for request in requests])
    print(f"2 workers gave the same {len(results)} results as this process")


if __name__ == "__main__":
    main()
