# SPDX-License-Identifier: Apache-2.0
"""Errors that a person meets: what is wrong, and what to do next."""

# The exit code after Ctrl-C.
INTERRUPTED = 130


class SetupError(Exception):
    """A failure with a remedy. The entry point prints it without a traceback.

    `details` is more text, such as the end of a log.
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
