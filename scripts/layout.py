# SPDX-License-Identifier: Apache-2.0
"""Where everything is: the paths of the checkout and of what set-up builds."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The values of --codegen; in upper case, of CMake's USE_DNNL_CODEGEN.
CODEGENS = ("json", "c_src")


class Layout:
    """Paths of one checkout; tests pass a root of their own. Each codegen has its own library."""

    # Of the environment: what set-up calls it, the groups of packages that every command needs,
    # the module that is imported once it is ready, and whether TVM is the prebuilt tree.
    title = ""
    groups = ("prebuilt", "build", "test", "demo", "report", "wheel-build")
    module = "tvm.relay"
    has_tree = True
    # The oldest glibc that all the pinned binary packages run on.
    min_glibc = (2, 34)
    # The layout whose build has the core's objects, if that is another one.
    core = None

    def __init__(self, root=ROOT, codegen=CODEGENS[0]):
        self.root = Path(root)
        self.requirements = self.root / "requirements"
        self.overlay = self.root / "python"
        # On Python's path: the package that writes reports as pages.
        self.report_page = self.root / "scripts" / "report_page"
        self.build = self.root / "build"
        self.venv = self.build / "venv"
        self.bin = self.venv / "bin"
        self.python = self.bin / "python"
        self.prebuilt = self.build / "prebuilt"
        self.tvm = self.prebuilt / "tvm"
        self.onednn = self.build / "onednn"
        self.onednn_newer = self.build / "onednn-newer"
        self.onednn_newest = self.build / "onednn-newest"
        self.codegen = codegen
        self.native = self.build if codegen == CODEGENS[0] else self.build / codegen
        # One build makes both libraries, which differ in one object file.
        self.cmake = self.build / "cmake"
        self.target = "tvm_dnnl" if codegen == CODEGENS[0] else f"tvm_dnnl_{codegen}"
        self.library = self.native / "lib" / "libtvm_dnnl.so"
        self.wheels = self.build / "wheels"
        self.logs = self.build / "logs"
        # The graphs that the tests have compiled, and those that were damaged and found a mistake.
        self.corpus = self.build / "corpus"
        self.artifacts = self.build / "artifacts"
        # Valid nodes for the C++ tests.
        self.drawn_nodes = self.build / "drawn_nodes.jsonl"
        # The same on every machine: graphs to damage, and damaged artifacts that failed once.
        self.gate_graphs = self.root / "tests" / "cpp-runtime" / "artifacts" / "graphs.jsonl"
        self.gate_failures = self.gate_graphs.parent / "failures"
        self.gate_corpus = self.build / "gate-corpus"
        # What CMake is told beside oneDNN's place, and the pins of what is compiled against.
        self.definitions = {"TVM_TREE": self.tvm, "USE_DNNL_CODEGEN": CODEGENS[0].upper()}
        self.pins = ("build.txt", "wheel-tvm.txt", "wheel-onednn.txt")
        self.lock = self.build / ".lock"
        self.in_use = self.build / ".in-use"

    def with_codegen(self, codegen):
        """Return the paths of the same checkout for another codegen."""
        return Layout(self.root, codegen)


class PluginLayout(Layout):
    """Paths of the same checkout for the plug-in, beside `apache-tvm` as pip installs it."""

    title = " of the plug-in"
    groups = (
        *("relax", "relax-models", "language-model", "build", "test", "report", "wheel-build"),
    )
    module = "tvm_dnnl"
    has_tree = False
    min_glibc = (2, 28)

    def __init__(self, root=ROOT):
        super().__init__(root)
        self.native = self.build / "relax"
        self.venv = self.native / "venv"
        self.bin = self.venv / "bin"
        self.python = self.bin / "python"
        # Where pip installs, for the Python that runs this.
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.packages = self.venv / "lib" / version / "site-packages"
        self.cmake = self.native / "cmake"
        self.library = self.packages / "tvm_dnnl" / "libtvm_dnnl_relax.so"
        self.definitions = {"TVM_FFI": self.packages / "tvm_ffi", "USE_DNNL": self.onednn}
        relay = Layout(root)
        if relay.library.is_file():
            self.core = relay
            self.definitions["DNNL_CORE"] = relay.cmake / "core.cmake"
        self.pins = ("build.txt", "relax.txt", "wheel-build.txt", "wheel-onednn.txt")
