# SPDX-License-Identifier: Apache-2.0
"""The wheel of the plug-in: what it holds, its tag, and that it runs where it is installed."""

import hashlib
import json
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import onnx
import pytest
import tvm_dnnl
from dnnl_tests.models import onnx_networks
from dnnl_tests.wheel_libraries import check_libraries

from scripts.layout import PluginLayout
from scripts.runner import clean_environment
from scripts.wheel import wheel

LAYOUT = PluginLayout()
# What `./dev.py` has prepared has the packages that build a wheel.
PREPARED = pytest.mark.skipif(Path(sys.prefix) != LAYOUT.venv, reason="not in dev.py's environment")


@PREPARED
@pytest.mark.slow
def test_wheel(tmp_path):
    built = wheel.build(LAYOUT, tmp_path / "dist")
    check_libraries(built, tmp_path / "wheel", {"libtvm_dnnl_relax.so", "libdnnl.so.3"})
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
        (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
        (name,) = (name for name in names if name.endswith("/CARRIED.md"))
        carried = archive.read(name).decode()
        (name,) = (name for name in names if name.endswith(".dist-info/sboms/sbom.cdx.json"))
        materials = json.loads(archive.read(name))
        onednn_sha256 = hashlib.sha256(archive.read("tvm_dnnl/libdnnl.so.3")).hexdigest()
    # It names what there is, and nothing of the other wheel.
    for path in re.findall(r"`(\w+(?:/[\w.]+)*)`", carried):
        if path.startswith(("tvm_", "dnnl_")):
            assert any(name == path or name.startswith(f"{path}/") for name in names), path
    assert {"LLVM", "PicoJSON", "hhb-tvm"}.isdisjoint(re.findall(r"[\w-]+", carried))
    carried = {each["name"]: each for each in materials["components"]}
    assert set(carried) == {"oneDNN", "apache-tvm-ffi"}
    assert carried["oneDNN"]["version"] == "3.2.0"
    assert carried["apache-tvm-ffi"]["version"] == version("apache-tvm-ffi")
    assert carried["oneDNN"]["hashes"] == [{"alg": "SHA-256", "content": onednn_sha256}]
    assert materials["metadata"]["component"]["version"] == tvm_dnnl.__version__
    libraries = {f"tvm_dnnl/{name}" for name in ("libtvm_dnnl_relax.so", "libdnnl.so.3")}
    assert libraries == {name for name in names if ".so" in name}
    assert not [name for name in names if name.startswith("tvm/") or "__pycache__" in name]
    assert any(name.endswith("licenses/oneDNN-LICENSE.txt") for name in names)
    assert "Requires-Python: >=3.10\n" in metadata
    assert re.search("^Requires-Dist: apache-tvm>=0.26.0$", metadata, re.MULTILINE)
    assert "Requires-Dist: apache-tvm-ffi>=0.1.15.post2" in metadata

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    environ = clean_environment()
    environ.pop("LD_LIBRARY_PATH", None)
    # What the wheel requires is in the environment of this checkout: nothing is downloaded.
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site / "requirements.pth").write_text(f"{LAYOUT.packages}\n")
    pip = [LAYOUT.python, "-m", "pip", "--disable-pip-version-check", "--python", python]
    program = "; print(sys.modules['tvm_dnnl'].__file__, sys.modules['tvm_dnnl'].dnnl_version())"
    model = onnx_networks.mobilenet_v2(classes=10, batch="n")
    onnx.save(model, tmp_path / "model.onnx")
    from_readme = re.search("```python\n(.+?)```", metadata, re.DOTALL).group(1)
    example = [python, LAYOUT.root / "docs/examples/relax_model.py", "model.onnx"]
    printed = []
    for command in (
        [*pip, "install", "--quiet", "--no-index", built],
        example,
        [python, "-c", from_readme],
        [python, "-W", "error", "-c", "import sys, tvm_dnnl" + program],
        # Without that import: TVM loads what has an entry point for it.
        [python, "-W", "error", "-c", "import sys, tvm" + program],
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout)
    assert printed[-2:] == [f"{site}/tvm_dnnl/__init__.py 3.2.0\n"] * 2
    assert re.search("with oneDNN .* ms, 153 of 153 ops in 1 partition\n", printed[1])
    # Fifty layers, each with sums in another order.
    assert float(printed[1].split()[-1]) < 1e-4


@PREPARED
def test_a_wheel_that_no_tag_fits(tmp_path, capsys):
    """It is built all the same, for this machine."""
    from scripts.wheel import tagged_wheel

    path = tmp_path / "a-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/__init__.py", "")
        for name in ("WHEEL", "METADATA", "RECORD"):
            archive.writestr(f"a-1.dist-info/{name}", "")
    assert tagged_wheel.tagged(path) == path
    printed = capsys.readouterr().out
    assert "no ELF executable" in printed and "for this machine only" in printed
