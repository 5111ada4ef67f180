# SPDX-License-Identifier: Apache-2.0
"""How often a library's constants are in memory: once, in the file or as oneDNN packed them."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
import tvm_ffi
from tvm import relax
from tvm.relax import op
from tvm_dnnl._dnnl import imports_file

from dnnl_relax.modules import (
    X4,
    check,
    compiled,
    const,
    conv_bias_relu,
    imported,
    module,
    partitions,
    rand,
    run,
    var,
)

WIDTH = 512
SHAPE = (1, WIDTH, 7, 7)
X = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")


def weights(layers, seed=1):
    """Weights of 3x3 convolutions, 9.4 MB each."""
    rng = np.random.default_rng(seed)
    scale = np.float32(np.sqrt(2 / (9 * WIDTH)))
    shape = (WIDTH, WIDTH, 3, 3)
    return [rng.standard_normal(shape, dtype="float32") * scale for _ in range(layers)]


def convolutions(values, apart=False):
    """A chain of convolutions with relus, or with what stays on TVM between them."""

    def build(builder, x):
        for value in values:
            x = builder.emit(op.nn.conv2d(x, relax.const(value), padding=1))
            x = builder.emit(op.atan(x) if apart else op.nn.relu(x))
        return x

    return module(build, var("x", *SHAPE))


def exported(mod, path):
    tvm.compile(compiled(tvm_dnnl.partition_for_dnnl(mod)), target="llvm").export_library(str(path))
    return path


def called(loaded):
    machine = relax.VirtualMachine(loaded, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(X)).numpy()


def resident_megabytes(when="VmRSS"):
    """The memory that this process has now, or had at most ("VmHWM"), mapped files included."""
    (line,) = [each for each in Path("/proc/self/status").open() if each.startswith(when)]
    return int(line.split()[1]) / 1e3


def growth(small, large):
    """Load and run a small library, then a large one; print the megabytes that this one adds."""
    kept = [tvm.runtime.load_module(small)]
    called(kept[0])
    before = resident_megabytes()
    kept.append(tvm.runtime.load_module(large))
    called(kept[1])
    print(resident_megabytes() - before)


def in_new_process(function, *words, module=__name__):
    """Call a function of a test file with texts in another process; return what it prints."""
    program = f"import sys, {module}; {module}.{function}(*sys.argv[1:])"
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("apart", [False, True], ids=["one-partition", "many"])
def test_loaded_constants_are_in_memory_once(tmp_path, apart):
    """TVM's own const loader makes it three times: mapped, copied and packed."""
    layers = weights(8)
    small = exported(convolutions(layers[:1], apart), tmp_path / "small.so")
    large = exported(convolutions(layers[1:], apart), tmp_path / "large.so")
    megabytes = sum(value.nbytes for value in layers[1:]) / 1e6
    assert float(in_new_process("growth", small, large)) < 1.2 * megabytes


def mapped_by_rows(path):
    """Load a library and read some rows of its table; print the megabytes of files this maps."""
    main = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())["main"]
    before = resident_megabytes("RssFile")
    for count in (3, 4):
        main(tvm.runtime.tensor(np.arange(count, dtype="int32")))
    print(resident_megabytes("RssFile") - before)


def test_a_table_of_rows_stays_in_the_file(tmp_path):
    """Only the pages of rows that are read come into memory, such as those of an embedding."""
    table = relax.const(np.random.default_rng(0).standard_normal((1 << 15, 512), "float32"))

    def build(builder, ids):
        rows = builder.emit(op.take(table, ids, axis=0))
        return builder.emit(op.matmul(rows, const(512, 64)))

    path = exported(module(build, var("ids", "n", dtype="int32")), tmp_path / "table.so")
    assert float(in_new_process("mapped_by_rows", path)) < 32


def test_a_loaded_library_gives_right_numbers_and_its_constants(tmp_path):
    layers = weights(3)
    mod = convolutions(layers, apart=True)
    assert partitions(tvm_dnnl.partition_for_dnnl(mod)) == 3
    loaded = tvm.runtime.load_module(str(exported(mod, tmp_path / "model.so")))
    (loader,) = imported(loaded, "const_loader")
    (expected,) = run(mod, X)
    for _ in range(2):
        constants = loader["get_const_var_tensor"]()
        sums = sorted(float(value.numpy().sum()) for value in constants.values())
        np.testing.assert_allclose(sums, sorted(float(value.sum()) for value in layers), rtol=1e-6)
        # Once more after the run, when the copies that oneDNN was given are gone.
        np.testing.assert_allclose(called(loaded), expected, rtol=1e-4, atol=1e-4)


def compiling(small, large, library):
    """Compile and export a small file, then a large one; print the megabytes that this one adds."""
    tvm_dnnl.compile(small).export_library(library)
    before = resident_megabytes("VmHWM")
    tvm_dnnl.compile(large).export_library(library)
    print(resident_megabytes("VmHWM") - before)


def test_peak_of_a_process_that_compiles_and_exports(tmp_path):
    """Weights are there twice at once: in the file's graph and the module, or there and packed."""
    layers, paths = weights(8), []
    for name, values in (("small", layers[:1]), ("large", layers[1:])):
        nodes = [
            onnx.helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1, 1, 1, 1])
            for i in range(len(values))
        ]
        sides = [
            onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, SHAPE)
            for i in (0, len(values))
        ]
        arrays = [onnx.numpy_helper.from_array(value, f"w{i}") for i, value in enumerate(values)]
        graph = onnx.helper.make_graph(nodes, "convolutions", sides[:1], sides[1:], arrays)
        opset = onnx.helper.make_opsetid("", 17)
        paths.append(str(tmp_path / f"{name}.onnx"))
        onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), paths[-1])
    megabytes = sum(value.nbytes for value in layers[1:]) / 1e6
    grown = float(in_new_process("compiling", *paths, str(tmp_path / "model.so")))
    # Besides them, the largest ones while they are read and packed.
    assert grown < 2.8 * megabytes, f"{grown / megabytes:.1f} times the weights"


def test_a_weight_of_several_partitions_is_stored_once(tmp_path):
    (layer,) = weights(1)
    mod = convolutions([layer, layer.copy(), -layer], apart=True)
    model = tvm_dnnl.compile(mod)
    assert model.report.partitions == 3
    model.export_library(tmp_path / "model.so")
    assert os.path.getsize(tmp_path / "model.so") < 2.1 * layer.nbytes
    loaded = tvm_dnnl.load_model(tmp_path / "model.so")
    np.testing.assert_array_equal(loaded(X), model(X))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "int64", "bool"]
)
def test_constants_are_written_as_tvm_writes_them(dtype):
    values = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype, dtype))
    tensors = {"a": tvm.runtime.tensor(values), "empty": tvm.runtime.tensor(values[:0])}
    create = tvm_ffi.get_global_func("ffi.Module.create.const_loader")
    loader = create(tensors, {})
    saved = tvm_ffi.get_global_func("runtime.contrib.dnnl.module_bytes")(loader)
    for written in (saved, b"".join(imports_file._constants(loader))):
        read = load_constants(written)["get_const_var_tensor"]()
        assert read.keys() == tensors.keys()
        np.testing.assert_array_equal(read["a"].numpy(), values)
        assert read["empty"].shape == (0, 3)
    assert len(saved) == sum(len(part) for part in imports_file._constants(loader))


# A process with TVM has some 250 MB. TVM's const loader would take up to 8 GB for these sizes.
LIMIT_MEGABYTES = 500


def damaged(folder):
    """Load and run libraries whose constants have other sizes and counts; print how they end.

    Each does so in a process of its own, which nothing that was run before is in.
    """
    folder, x = Path(folder), rand(2, 6, 9, 9)
    path = folder / "good.so"
    mod = compiled(tvm_dnnl.partition_for_dnnl(module(conv_bias_relu, X4), prune=False))
    tvm.compile(mod, target="llvm").export_library(str(path))
    good = path.read_bytes()
    # The size of the const loader's bytes, and these: names, and of each constant what it is.
    begin = good.index(b"const_loader") + len(b"const_loader")
    (size,) = struct.unpack_from("<Q", good, begin)
    hostile = (0, 1, size - 1, size + 1, 2**31, 2**60, 2**64 - 1)
    changes = [(begin, value) for value in hostile]
    # Up to the first constant's values: two names of 32 bytes, and 72 bytes of its type.
    for offset in range(8, 8 + 8 + 2 * 40 + 8 + 72, 8):
        changes += [(begin + offset, value) for value in (0, 2**31, 2**60, 2**64 - 1)]
    for number, change in enumerate([None, *changes]):
        data = bytearray(good)
        if change:
            struct.pack_into("<Q", data, *change)
        library = folder / f"{number}.so"
        library.write_bytes(data)
        child = os.fork()
        if child == 0:
            try:
                machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
                np.save(folder / f"{number}.npy", machine["main"](tvm.runtime.tensor(x)).numpy())
                os._exit(0)
            except Exception:
                os._exit(3)
        _, status, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if usage.ru_maxrss > 1000 * LIMIT_MEGABYTES:
            code = f"{usage.ru_maxrss} kB"
        right = code == 0 and np.array_equal(
            np.load(folder / f"{number}.npy"), np.load(folder / "0.npy")
        )
        print("right" if right else "error" if code == 3 else f"{change}: ended with {code}")


def test_damaged_constants_of_a_library(tmp_path):
    """An error, or the right numbers where what was changed is not read."""
    done = in_new_process("damaged", tmp_path)
    lines = done.split("\n")[:-1]
    assert lines[0] == "right" and set(lines) == {"right", "error"}, lines
    assert len(lines) == 92 and lines.count("error") > 70, lines


VALUES = np.arange(5.0)


def constants():
    """The bytes of a const loader with one constant."""
    one = struct.pack("<Q", 1)
    name, symbol = one + b"a", one + b"f"
    # Magic number, device, rank, type, shape, size.
    head = struct.pack("<QQiiiBBHqq", 0xDD5E40F096B4A13F, 0, 1, 0, 1, 2, 64, 1, 5, VALUES.nbytes)
    return one + name + one + head + VALUES.tobytes() + one + symbol + one + one + name


def load_constants(data):
    return tvm_ffi.get_global_func("ffi.Module.load_from_bytes.const_loader")(data)


def test_constants_that_are_in_no_library():
    """TVM's own const loader reads them, once their sizes are checked."""
    (value,) = load_constants(constants())["get_const_var_tensor"]().values()
    np.testing.assert_array_equal(value.numpy(), VALUES)


def damaged_constants():
    """Cut constants off at each place, and write huge numbers into each; print the errors."""
    good = constants()
    trials = [good[:end] for end in range(len(good))]
    for value in (2**27, 2**31 - 1, 2**31, 2**60, 2**63, 2**64 - 1):
        for width in (4, 8):
            number = (value % 2 ** (8 * width)).to_bytes(width, "little")
            trials += [good[:at] + number + good[at + width :] for at in range(len(good) - width)]
    for number, data in enumerate(trials):
        try:
            load_constants(data)
            assert number >= len(good), "cut off, and nobody sees it"
        except Exception as error:
            print(str(error).splitlines()[-1])
    assert resident_megabytes("VmHWM") < LIMIT_MEGABYTES


def test_damaged_constants_that_are_in_no_library():
    """No memory is taken for sizes that are not there, wherever they stand."""
    errors = in_new_process("damaged_constants").split("\n")[:-1]
    of_sizes = [each for each in errors if "The constants of a library are cut off or dama" in each]
    assert len(of_sizes) > 1000 and len(errors) - len(of_sizes) < 300, (len(errors), len(of_sizes))


def test_weight_of_several_matmuls():
    """It is transposed once for all of them, such as the steps of an LSTM."""
    weight = const(8, 8)

    def build(builder, x):
        for _ in range(3):
            x = builder.emit(op.nn.relu(builder.emit(op.matmul(x, weight))))
        return x

    partitioned = check(module(build, var("x", 2, 8)), {"dnnl.dense_relu": 3}, rand(2, 8))
    (library,) = compiled(partitioned).attrs["external_mods"]
    assert library.inspect_source().count('"op": "const"') == 1
