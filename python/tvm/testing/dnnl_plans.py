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
"""What oneDNN made of the partitions of a compiled library."""

import json

import tvm

from .dnnl_c_source import imported_modules


def dnnl_modules(lib):
    """Return the ``dnnl_json`` runtime modules of a compiled or loaded library.

    Parameters
    ----------
    lib : Runner, GraphExecutorFactoryModule, tvm.runtime.vm.Executable or tvm.runtime.Module
        Plans exist only after the first run, in the instance that ran.

    Returns
    -------
    list of tvm.runtime.Module
        In order of the imports, each once.
    """
    return [module for module in imported_modules(lib) if module.type_key == "dnnl_json"]


def primitives(runner, function, repeat):
    """Time the oneDNN primitives of a model, those of all its partitions in their order.

    Parameters
    ----------
    runner : Runner
        A model that was run.
    function : str
        ``"measure_primitives"`` for each alone and hot, ``"profile_primitives"`` for each in its
        turn.
    repeat : int
        How many times each is run.

    Returns
    -------
    list of dict
    """
    return [
        row
        for module in dnnl_modules(runner)
        for row in json.loads(module.get_function(function)(repeat))
    ]


def _plans_of_c_source(path):
    """Return a plan for each partition of a library of C source: its ops' plans in one."""
    found = {}
    for op in json.loads(tvm.get_global_func("runtime.contrib.dnnl.get_op_plans")(path)):
        plan = found.setdefault(op["symbol"], {"symbol": op["symbol"], "primitives": []})
        plan["primitives"] += op["primitives"]
    return list(found.values())


def plans(runner):
    """Return the plan of each partition that a Runner has run, as a list of dict.

    Those of C source have the symbol and the primitives only.
    """
    found = [json.loads(module.get_function("get_plan")()) for module in dnnl_modules(runner)]
    path = getattr(runner, "path", None)
    return found + (_plans_of_c_source(path) if path else [])
