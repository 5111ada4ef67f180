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
"""The Python that Relay and Relax share: what is listed for a tree without Relay."""

from scripts.layout import ROOT
from scripts.patchset.patch_set import read_list

BACKEND = "python/tvm/relay/op/contrib/_dnnl"


def listed():
    """Return the paths of files and folders that a tree without Relay gets."""
    return read_list(ROOT / "patches/relax/overlay.list")


def shared(root):
    """Return the files that Relay and Relax share."""
    paths = [root / path for path in listed() if path.startswith(BACKEND)]
    return {
        file
        for path in paths
        for file in ([path] if path.suffix else path.rglob("*.py"))
        if file.is_file()
    }
