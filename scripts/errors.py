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
"""Errors that a person meets: what is wrong, and what to do next."""


class SetupError(Exception):
    """A failure with a remedy. The entry point prints it without a traceback.

    Parameters
    ----------
    problem : str
        What is wrong, in one sentence.
    remedy : str
        What to do next.
    details : str
        More text, such as the end of a log.
    """

    def __init__(self, problem, remedy="", details=""):
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.details = details

    def __str__(self):
        parts = [f"error: {self.problem}"]
        if self.details:
            parts.append("\n".join("    " + line for line in self.details.splitlines()))
        if self.remedy:
            parts.append(f"what to do: {self.remedy}")
        return "\n".join(parts)
