# SPDX-License-Identifier: Apache-2.0
"""Our C++ compiled with sanitizers, which end a program at its first mistake."""

from scripts.setup.native import NativeBuild

# By value of --sanitize: what gcc and clang call them.
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
# vptr: classes of libtvm.so, which hides their type information from us.
FLAGS = "-fno-sanitize-recover=all -fno-sanitize=vptr -fno-omit-frame-pointer -g1 -O1"


class SanitizedBuild(NativeBuild):
    """A build of the C++ tests with sanitizers.

    Parameters
    ----------
    runner : Runner
        Runs the commands.
    layout : Layout
        The checkout.
    name : str
        Which of SANITIZERS.
    """

    def __init__(self, runner, layout, name):
        flags = f"-fsanitize={SANITIZERS[name]} {FLAGS}"
        # Nobody compiles after each change with sanitizers.
        definitions = {"DNNL_UNITY_BUILD": "ON"}
        if name == "address":
            # Checks of the tests' own loops took longer than those of what they test. Without
            # them, ThreadSanitizer would miss how the tests' threads synchronize.
            definitions["DNNL_TEST_OPTIONS"] = "-O0;-fno-sanitize=all"
        super().__init__(runner, layout, layout.build / name / "cmake", flags, definitions)
        self.suppressions = layout.root / "scripts" / "test" / "suppressions"

    def variables(self, environ):
        """Return the environment of the programs; what the caller has set comes last and counts."""
        values = {
            # An allocation of more than a gigabyte is a report, too: no test needs one.
            "ASAN_OPTIONS": "max_allocation_size_mb=1024:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "LSAN_OPTIONS": f"print_suppressions=0:suppressions={self.suppressions / 'leak.supp'}",
            "TSAN_OPTIONS": f"suppressions={self.suppressions / 'thread.supp'}",
        }
        asked = {name: ":".join(filter(None, [values[name], environ.get(name)])) for name in values}
        return {**environ, **asked}
