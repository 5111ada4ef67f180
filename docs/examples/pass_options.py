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
"""Prints the options of this backend that a PassContext takes, with their types."""

import tvm
from tvm.relay.op.contrib import dnnl  # noqa: F401  (its import loads the backend)

for name, about in sorted(tvm.transform.PassContext.list_configs().items()):
    if name.startswith("relay.ext.dnnl."):
        print(name, about["type"])
