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
"""The options of partition_for_dnnl that TVM's PassContext has."""

from __future__ import annotations

import tvm
from tvm.contrib.onednn.options import DEFAULTS

# Its fields are in src/relay/backend/contrib/dnnl/options.cc.
KEY = "relay.ext.dnnl.options"


def options_of_pass_context() -> dict:
    """Return the options that the current PassContext has, by name."""
    context = tvm.transform.PassContext.current().config.get(KEY)
    if context is None:
        return {}
    given = {name: getattr(context, name) for name in DEFAULTS}
    # An option that was not given there has the default.
    if bool(context.bf16):
        given["bf16"] = True
        if given["precision"] == DEFAULTS["precision"]:
            del given["precision"]
    read = {
        "exclude": lambda names: _split_names(str(names)),
        "precision": str,
        "num_threads": lambda number: int(number) or None,
    }
    return {name: read.get(name, bool)(value) for name, value in given.items()}


def _split_names(text: str) -> list[str]:
    """Return the names in a string that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
