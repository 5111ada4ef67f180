# SPDX-License-Identifier: Apache-2.0
"""What the libraries in a wheel need of the machine that it is installed on."""

import re
import subprocess
import zipfile


def check_libraries(wheel, folder, names):
    """Assert that a wheel has these libraries, and that its libraries run where its tag says."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [archive.extract(each, folder) for each in archive.namelist() if ".so" in each]
    paths = {path.rpartition("/")[2]: path for path in paths}
    assert names <= set(paths)
    tag = re.search(r"-manylinux_2_(\d+)_x86_64\.whl$", wheel.name)
    assert tag, wheel.name
    newest = 0
    for path in paths.values():
        said = subprocess.check_output(["readelf", "-dV", path], text=True, errors="replace")
        # TVM's own library is as its vendor has linked it.
        assert "dnnl" not in path.rpartition("/")[2] or "NOW" in said, path
        # Nothing outside of the package.
        assert set(re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", said)) <= {"$ORIGIN"}, path
        newest = max([newest, *map(int, re.findall(r"GLIBC_2\.(\d+)", said))])
    assert newest <= int(tag.group(1))
