# SPDX-License-Identifier: Apache-2.0
"""oneDNN for TVM with Relax: a plug-in beside the `apache-tvm` that pip installs.

Importing it registers the runtime module "dnnl_json" and the codegen `relax.ext.dnnl`. Where its
wheel is installed, `import tvm` does so.

Only the libraries of TVM's runtime are loaded, unless `import tvm` comes first. TVM itself is
imported when it is needed: not to load and run a library.
"""

import ctypes
import importlib
import importlib.util
import re
import sys
from pathlib import Path

try:
    from . import _built_with
except ImportError as _error:
    raise ImportError(
        f"{Path(__file__).parent} is not an installed tvm_dnnl: it has no _built_with.py, which "
        "the build writes. Install it (`pip install .` in the checkout), and take the folder that "
        "holds it out of PYTHONPATH"
    ) from _error

#: That of this project, whose wheels have it in their names.
__version__ = "0.1.0"

#: The versions that the plug-in was tried with; later ones may do.
TRIED = "apache-tvm 0.26.0 and 0.27.0.post1 with apache-tvm-ffi 0.1.15.post2"

_NEEDED = ("FuseOpsByPattern", "MergeCompositeFunctions", "RunCodegen")


_CODEGEN = "relax.ext.dnnl"
# The modules of the API that load and run models without TVM.
_WITHOUT_TVM = ("loaded", "cached")


def autoload():
    """Connect the plug-in to TVM: `import tvm` calls this by the wheel's entry point."""
    import tvm

    if not getattr(tvm, "_RUNTIME_ONLY", False):
        from ._dnnl import registration

        registration.register()


def _check_tvm():
    """Raise an ImportError if the TVM that is installed cannot have the plug-in."""
    for name in ("tvm", "tvm_ffi"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"tvm_dnnl needs the package {name}, which is not installed. {_advice()}"
            )
    if "tvm" not in sys.modules and _runtime_libraries():
        return
    import tvm

    version = getattr(tvm, "__version__", "of an unknown version")
    if importlib.util.find_spec("tvm.relay") is not None:
        raise ImportError(
            f"tvm_dnnl is for TVM without Relay, but TVM {version} has it. {_advice()}"
        )
    if _is_runtime_only():
        return
    try:
        from tvm.relax import transform
    except ImportError as error:
        raise ImportError(f"TVM {version} has no Relax. {_advice()}") from error
    if _numbers(version) and _numbers(version) < (0, 26):
        raise ImportError(
            f"TVM {version} is older than 0.26, and its Relax is another. {_advice()}"
        )
    missing = [name for name in _NEEDED if not hasattr(transform, name)]
    if missing:
        raise ImportError(f"TVM {version} has no relax.transform.{missing[0]}. {_advice()}")


def _advice():
    return f"The plug-in was tried with {TRIED}: pip install apache-tvm==0.27.0.post1"


def _numbers(version):
    """Return the first two numbers of a version, or nothing."""
    return tuple(map(int, (re.match(r"(\d+)\.(\d+)", version) or [""])[0].split(".")[:2]))


def _runtime_libraries():
    """Return those of a TVM that can have the plug-in; none if importing it must tell."""
    folder = Path(importlib.util.find_spec("tvm").origin or "").parent / "lib"
    version = _installed().version("apache-tvm")
    # The other has functions of TVM's own that models call, such as sort.
    paths = [folder / f"libtvm_{name}.so" for name in ("runtime", "runtime_extra")]
    is_there = version and paths[0].is_file() and _numbers(version) >= (0, 26)
    return list(filter(Path.is_file, paths)) if is_there else []


def _installed():
    return sys.modules["tvm.contrib.onednn.installed"]


def _is_runtime_only():
    """Whether this process has TVM's runtime without its compiler: it only loads libraries."""
    import tvm

    return getattr(tvm, "_RUNTIME_ONLY", False)


def _check_ffi():
    """Raise an ImportError if the library was compiled for another ABI than that of tvm-ffi here.

    tvm-ffi 0.1.13 changed the layout of objects: such a mismatch otherwise ends in wrong results or
    a crash. Later versions of the same minor version are to run what was compiled for earlier ones.
    """
    numbers = (ctypes.c_uint32 * 3)()
    ctypes.CDLL(None).TVMFFIGetVersion(numbers)
    wanted, here = _built_with.TVM_FFI_ABI, tuple(numbers)
    if here[:2] != wanted[:2] or here < wanted:
        names = [".".join(map(str, each)) for each in (wanted, here)]
        raise ImportError(
            f"tvm_dnnl was compiled for tvm-ffi {names[0]}, but the package apache-tvm-ffi that is "
            f"installed has the ABI of {names[1]}. Install a later apache-tvm-ffi, or build "
            "tvm_dnnl again beside this one"
        )


def _load_library():
    """Open the runtime, which registers its global functions."""
    import tvm_ffi

    _check_ffi()
    if "tvm" not in sys.modules:
        # As `import tvm` does, which finds them opened.
        for path, mode in zip(_runtime_libraries(), (ctypes.RTLD_GLOBAL, ctypes.RTLD_LOCAL)):
            ctypes.CDLL(str(path), mode)
    if tvm_ffi.get_global_func("runtime.DNNLJSONRuntimeCreate", allow_missing=True) is not None:
        raise ImportError(
            "this TVM has a oneDNN backend already: either it was built with USE_DNNL, or another "
            "copy of tvm_dnnl is loaded. Use one of them."
        )
    path = Path(_built_with.__file__).with_name("libtvm_dnnl_relax.so")
    for each in (path, path.with_name("libdnnl.so.3")):
        if each.is_file() and _installed().is_cut_off(each):
            raise ImportError(f"{each} is cut off: install tvm_dnnl again")
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
    if "No such file" in error:
        return "Install tvm_dnnl again"
    return _advice()


class _Finder:
    """Finds the package tvm.contrib.onednn, which lies in this one."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "tvm.contrib.onednn":
            return None
        return importlib.util.spec_from_file_location(name, _ONEDNN / "__init__.py")


def _import_alone(name):
    """Import a module of tvm.contrib.onednn without its parent packages, the first of which is TVM.

    Later imports find it in sys.modules.
    """
    name, path = f"tvm.contrib.onednn.{name}", _ONEDNN / f"{name}.py"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def _compile_partitions(*args):
    """Compile partitions of a module that this package did not make: `registration` replaces it."""
    import tvm_ffi

    autoload()
    return tvm_ffi.get_global_func(_CODEGEN)(*args)


# They stay when the package is reloaded.
_LIBRARY = globals().get("_LIBRARY")
_ONEDNN = Path(importlib.util.find_spec(f"{__name__}.contrib.onednn").origin).parent
if _LIBRARY is None:
    _import_alone("installed")
    _check_tvm()
    _LIBRARY = _load_library()
    sys.meta_path.append(_Finder)
    if "tvm" in sys.modules:
        autoload()
    else:
        sys.modules["tvm_ffi"].register_global_func(_CODEGEN, _compile_partitions)
        for _name in (
            "arguments",
            "interrupts",
            "environment",
            "progress",
            "compiler_lock",
            "export",
            "cache",
            "compiled_model",
        ):
            _import_alone(_name)


def __getattr__(name):
    """Import the API at its first use: `import tvm` imports this package, and may not need it.

    What loads and runs models is there without TVM's compiler, too.
    """
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    without_tvm = [importlib.import_module(f"._dnnl.{each}", __name__) for each in _WITHOUT_TVM]
    api = {each: getattr(module, each) for module in without_tvm for each in module.__all__}
    if name in api:
        return api[name]
    if not _is_runtime_only():
        autoload()
        module = importlib.import_module(".dnnl", package=__name__)
        api = {each: getattr(module, each) for each in module.__all__}
    if name == "__all__":
        return list(api)
    if name in api:
        return api[name]
    why = ", because TVM_USE_RUNTIME_LIB is set: TVM has no compiler" if _is_runtime_only() else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{why}")


def __dir__():
    return sorted([*globals(), *__getattr__("__all__")])
