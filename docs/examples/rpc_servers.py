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
"""TVM RPC: a tracker and two servers, here all on this machine; both servers run one model."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tvm
from tvm import rpc
from tvm.contrib import graph_executor
from tvm.rpc.tracker import Tracker

HOST, KEY = "127.0.0.1", "onednn"
path, name, shape = sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3].split(",")]
requests = np.random.default_rng(0).standard_normal((8, *shape), "float32")


def serve(executor, device, part):
    """Run requests on one executor, of this process or of a server; return their results."""
    results = []
    for request in part:
        executor.set_input(name, tvm.nd.array(request, device))
        executor.run()
        results.append(executor.get_output(0).numpy())
    return results


def connect(tracker):
    """Ask the tracker for a free server and load the model there."""
    remote = rpc.connect_tracker(HOST, tracker.port).request(KEY, session_timeout=60)
    remote.upload(path)
    lib = remote.load_module(path.rpartition("/")[2])
    return graph_executor.GraphModule(lib["default"](remote.cpu())), remote.cpu()


# On real machines these are `python -m tvm.exec.rpc_tracker` on one, and
# `python -m tvm.exec.rpc_server --tracker HOST:PORT --key onednn` on each of the others.
tracker = Tracker(HOST, port=9190, port_end=9290, silent=True)
servers = [
    rpc.Server(
        HOST, port=9300, port_end=9400, key=KEY, silent=True, tracker_addr=(HOST, tracker.port)
    )
    for _ in range(2)
]
try:
    workers = [connect(tracker) for _ in servers]
    with ThreadPoolExecutor(len(workers)) as pool:
        parts = list(
            pool.map(lambda job: serve(*job[0], job[1]), zip(workers, np.split(requests, 2)))
        )
finally:
    for server in servers:
        server.terminate()
    tracker.terminate()

local = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
np.testing.assert_array_equal(np.concatenate(parts), serve(local, tvm.cpu(), requests))
print(f"{len(parts)} servers gave the same {len(requests)} results as this process")
