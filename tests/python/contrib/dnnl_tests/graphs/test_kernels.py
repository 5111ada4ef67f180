# SPDX-License-Identifier: Apache-2.0
"""Single ops at the sizes where oneDNN's kernels differ; `./dev.py fuzz --kernels` draws more."""

import pytest

from dnnl_tests import kernel_scan
from dnnl_tests.marks import nightly_after

# The first seeds of each class; the others are nightly.
SEEDS = nightly_after(1, [range(60), *(range(n, n + 100) for n in range(60, 1060, 100))])


def assert_right(cases):
    """Run cases, and require that all are right, on no reference code."""
    failures = [
        (case, verdict) for case in cases if (verdict := kernel_scan.run(case)).kind != "right"
    ]
    assert not failures, "\n".join(f"{verdict}\n  {case}" for case, verdict in failures[:3])


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
@pytest.mark.parametrize("kind", kernel_scan.CLASSES)
def test_random_kernels(kind, seeds):
    drawn = [kernel_scan.draw(seed, [kind]) for seed in seeds]
    cases = [case for case in drawn if case is not None]
    assert len(cases) > len(seeds) // 2
    assert_right(cases)


def deconv(channels, outs, taps, strides, size, **more):
    """Return a transposed convolution of one image."""
    letters = "DHW"[3 - len(taps) :]
    attrs = dict(strides=strides, padding=[0] * 2 * len(taps), dilation=[1] * len(taps), groups=1)
    attrs.update(data_layout=f"NC{letters}", kernel_layout=f"IO{letters}")
    attrs.update(output_padding=[0] * len(taps))
    attrs.update({key: more.pop(key) for key in ("dilation", "groups") if key in more})
    case = dict(seed=1, kind="f32", op=f"nn.conv{len(taps)}d_transpose", largest=4, flops=1e9)
    shapes = [[1, channels, *[size] * len(taps)], [channels, outs // attrs["groups"], *taps]]
    return {**case, "shapes": shapes, "attrs": attrs, "post_ops": [], "zero_point": 0, **more}


def conv(case):
    """Return the convolution of the same sizes as a transposed one."""
    data, (ins, outs, *taps) = case["shapes"]
    attrs = {key: value for key, value in case["attrs"].items() if key != "output_padding"}
    attrs["kernel_layout"] = "OI" + attrs["kernel_layout"][2:]
    weight = [outs * attrs["groups"], ins // attrs["groups"], *taps]
    op = case["op"].removesuffix("_transpose")
    return {**case, "attrs": attrs, "op": op, "shapes": [data, weight]}


@pytest.mark.parametrize("post_ops", [["bias"], ["relu"], ["bias", "sum", "relu"], []])
@pytest.mark.parametrize(
    "channels,outs,taps,strides",
    [
        (32, 8, (32, 32), (16, 16)),
        (16, 4, (64, 64), (32, 32)),
        (64, 32, (8, 8), (8, 8)),
        (128, 128, (8, 8), (2, 2)),
        (256, 8, (4, 4, 4), (2, 2, 2)),
        (56, 80, (7, 7, 7), (7, 7, 7)),
        (256, 31, (4, 4), (4, 4)),
    ],
)
def test_large_kernels_apply_post_ops_once(channels, outs, taps, strides, post_ops):
    """Not once for each row of the kernel, as oneDNN 3.2 does."""
    case = deconv(channels, outs, list(taps), list(strides), 4, post_ops=post_ops)
    assert_right([case])


@pytest.mark.parametrize(
    "case",
    [
        deconv(64, 12, [3, 3], [3, 3], 16, kind="u8", zero_point=128, dilation=[2, 3]),
        deconv(64, 40, [1, 1], [3, 3], 16, kind="u8"),
        deconv(32, 64, [3, 3], [2, 2], 8, kind="s8", groups=4),
        deconv(16, 64, [3, 3], [4, 4], 9, kind="u8", zero_point=128, post_ops=["bias"]),
    ],
    ids=["dilation", "1x1", "groups", "gaps"],
)
def test_int8_deconvolutions_run_on_no_reference_code(case):
    assert_right([case])


@pytest.mark.parametrize("kind,zero_point", [("u8", 128), ("s8", 0), ("s8", 3)])
@pytest.mark.parametrize("taps", [[8], [2, 4], [2, 2, 2], [12, 12]], ids=str)
@pytest.mark.parametrize("is_transposed", [False, True], ids=["conv", "deconv"])
def test_depthwise_weights_keep_their_compensation(is_transposed, taps, kind, zero_point):
    """If they are packed by tiles of 8x8 elements, which oneDNN 3.2 does not sum."""
    case = deconv(32, 32, taps, [1] * len(taps), 14, kind=kind, zero_point=zero_point, groups=32)
    assert_right([case if is_transposed else conv(case)])


@pytest.mark.parametrize("post_ops", [[], ["sum"], ["bias", "relu"]], ids=str)
@pytest.mark.parametrize("kind", kernel_scan.kinds())
@pytest.mark.parametrize("taps", [[7], [5, 7]], ids=str)
def test_padding_as_long_as_the_unread_end(taps, kind, post_ops):
    """Of rows, which oneDNN 3.2 to 3.13 then take for unpadded."""
    case = conv(deconv(64, 16, taps, taps, 14, kind=kind, post_ops=post_ops))
    case["attrs"]["padding"][len(taps) - 1] = 5
    assert_right([case])


@pytest.mark.parametrize("kind,zero_point", [("u8", 128), ("s8", 3)])
@pytest.mark.parametrize("width", [33, 36, 48, 65])
@pytest.mark.parametrize("taps", [[2, 1], [3, 2], [2, 2, 2]], ids=str)
def test_zero_points_of_padded_rows(taps, width, kind, zero_point):
    """Without padded columns, where oneDNN on AMX reads beyond its sums of the weights."""
    case = conv(deconv(32, 64, taps, [1] * len(taps), 5, kind=kind, zero_point=zero_point))
    case["attrs"]["padding"][len(taps) - 2] = 1
    case["shapes"][0][-1] = width + taps[-1] - 1
    assert_right([case])


@pytest.mark.parametrize("kind,zero_point", [("u8", 128), ("s8", 3)])
@pytest.mark.parametrize("channels, outs, taps, size", [(16, 64, 6, 16), (32, 64, 11, 45)])
def test_zero_points_of_rows_with_a_long_padding(channels, outs, taps, size, kind, zero_point):
    """A causal convolution, and a transposed one, which is padded as far at both ends."""
    case = deconv(channels, outs, [taps], [1], size, kind=kind, zero_point=zero_point)
    causal = conv(case)
    causal["attrs"]["padding"] = [taps - 1, 0]
    assert_right([case, causal])


@pytest.mark.parametrize("kind,zero_point", [("u8", 128), ("s8", 3)])
@pytest.mark.parametrize(
    "taps, padding, sizes",
    [
        ([8, 3], [2, 1, 4, 2], [8, 15]),
        ([7, 4], [6, 1, 6, 0], [5, 19]),
        ([4, 4, 1], [2, 3, 0, 3, 2, 0], [8, 9, 3]),
        ([1, 1, 5], [0, 0, 0, 0, 0, 2], [1, 7, 6]),
    ],
    ids=str,
)
def test_zero_points_of_many_padded_rows(taps, padding, sizes, kind, zero_point):
    """Or of one plane, where oneDNN on AMX writes beyond its sums of the weights."""
    case = conv(
        deconv(
            32 if taps[0] == 1 else 96,
            64,
            taps,
            [1] * len(taps),
            8,
            kind=kind,
            zero_point=zero_point,
        )
    )
    case["attrs"]["padding"], case["shapes"][0][2:] = padding, sizes
    assert_right([case])


@pytest.mark.parametrize("kind", [kind for kind in kernel_scan.kinds() if "f" in kind])
@pytest.mark.parametrize("channels,groups", [(16, 4), (24, 6)])
def test_residual_of_blocks_of_four_channels(channels, groups, kind):
    """In place, where oneDNN stores 8 elements at once."""
    sizes = (channels, channels, [3, 3], [1, 1], 14)
    assert_right([deconv(*sizes, kind=kind, groups=groups, post_ops=["sum"])])


def test_the_same_seed_draws_the_same():
    assert kernel_scan.draw(7, ["conv"], ["f32"]) == kernel_scan.draw(7, ["conv"], ["f32"])


def test_a_wrong_result_and_an_error_are_found(monkeypatch):
    case = next(kernel_scan.cases(3, ["conv"], ["f32"]))
    run = kernel_scan.run_kernel
    monkeypatch.setattr(kernel_scan, "run_kernel", lambda *args, **more: run(*args, **more) + 1)
    assert kernel_scan.run(case).kind == "wrong"

    def fail(*args, **more):
        raise RuntimeError("of oneDNN")

    monkeypatch.setattr(kernel_scan, "run_kernel", fail)
    assert kernel_scan.run(case) == kernel_scan.Verdict("error", "RuntimeError: of oneDNN")
