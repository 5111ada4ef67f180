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
"""Shows on the console which of TVM's passes runs, in steps that take minutes."""

import contextlib

import tvm


@tvm.instrument.pass_instrument
class _Passes:
    """Counts passes as they begin."""

    def __init__(self, console):
        self.console, self.count = console, 0

    def run_before_pass(self, mod, info):  # pylint: disable=unused-argument
        """Show the pass that begins."""
        self.count += 1
        self.console.note(f"{self.count} passes, now {info.name}")


@contextlib.contextmanager
def shown(console):
    """Note the passes that run in this context, which is else as the current PassContext."""
    now = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=list(now.disabled_pass),
        instruments=[*(now.instruments or []), _Passes(console)],
        config=dict(now.config),
    ):
        yield
