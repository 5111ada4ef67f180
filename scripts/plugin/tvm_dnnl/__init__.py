# SPDX-License-Identifier: Apache-2.0
"""oneDNN for TVM with Relax: a plug-in beside the `apache-tvm` that pip installs.

Importing it registers the runtime module "dnnl_json" and the codegen `relax.ext.dnnl`. Where its
wheel is installed, `import tvm` does so.
"""

import ctypes
import importlib
import importlib.util
import re
from pathlib import Path

#: That of this project, whose wheels have it in their names.
__version__ = "0.1.0"

#: The versions that the plug-in was tried with. tvm-ffi's ABI is stable, so others may do.
TRIED = "apache-tvm 0.26.0 and 0.27.0.post1 with apache-tvm-ffi 0.1.15.post2"

_NEEDED = ("FuseOpsByPattern", "MergeCompositeFunctions", "RunCodegen")


def autoload():
    """Do nothing: `import tvm` calls this by the wheel's entry point; the import has done all."""


def _check_tvm():
    """Raise an ImportError if the TVM that is installed cannot have the plug-in."""
    remedy = f"The plug-in was tried with {TRIED}: pip install apache-tvm==0.27.0.post1"
    for name in ("tvm", "tvm_ffi"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"tvm_dnnl needs the package {name}, which is not installed. {remedy}"
            )
    import tvm

    version = getattr(tvm, "__version__", "of an unknown version")
    if importlib.util.find_spec("tvm.relay") is not None:
        raise ImportError(f"tvm_dnnl is for TVM without Relay, but TVM {version} has it. {remedy}")
    if _is_runtime_only():
        return
    try:
        from tvm.relax import transform
    except ImportError as error:
        raise ImportError(f"TVM {version} has no Relax. {remedy}") from error
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < (0, 26):
        raise ImportError(f"TVM {version} is older than 0.26, and its Relax is another. {remedy}")
    missing = [name for name in _NEEDED if not hasattr(transform, name)]
    if missing:
        raise ImportError(f"TVM {version} has no relax.transform.{missing[0]}. {remedy}")


def _is_runtime_only():
    """Whether this process has TVM's runtime without its compiler: it only loads libraries."""
    import tvm

    return getattr(tvm, "_RUNTIME_ONLY", False)


def _load_library():
    """Open the runtime, which registers its global functions."""
    import tvm_ffi

    if tvm_ffi.get_global_func("runtime.DNNLJSONRuntimeCreate", allow_missing=True) is not None:
        raise ImportError(
            "this TVM has a oneDNN backend already: either it was built with USE_DNNL, or another "
            "copy of tvm_dnnl is loaded. Use one of them."
        )
    path = Path(__file__).resolve().parent / "libtvm_dnnl_relax.so"
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{path} cannot be opened: {error}. {_remedy(str(error))}") from error


def _remedy(error):
    """Return what to do about a library that cannot be opened."""
    if "libdnnl" in error:
        return (
            "oneDNN's library lies beside it in the wheel: install tvm_dnnl again, or put the "
            "folder of a libdnnl.so.3 of 3.2 or newer into LD_LIBRARY_PATH"
        )
    if "libgomp" in error:
        return "Install GNU OpenMP: `apt-get install libgomp1` (Debian, Ubuntu)"
    return f"The plug-in was tried with {TRIED}: pip install apache-tvm==0.27.0.post1"


# It stays open when the package is reloaded.
_LIBRARY = globals().get("_LIBRARY")
if _LIBRARY is None:
    _check_tvm()
    _LIBRARY = _load_library()

import tvm.contrib  # noqa: E402

# tvm.contrib.onednn lies in this package.
_CONTRIB = str(Path(__file__).resolve().parent / "contrib")
if _CONTRIB not in tvm.contrib.__path__:
    tvm.contrib.__path__.append(_CONTRIB)

if not _is_runtime_only():
    from ._dnnl import registration

    registration.register()


def __getattr__(name):
    """Import the API at its first use: `import tvm` imports this package, and may not need it.

    What loads and runs models is there without TVM's compiler, too.
    """
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    for part in ("._dnnl.loaded", ".dnnl")[: 1 if _is_runtime_only() else 2]:
        api = importlib.import_module(part, package=__name__)
        if name in api.__all__:
            return getattr(api, name)
    if name == "__all__":
        return api.__all__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__getattr__("__all__")])
