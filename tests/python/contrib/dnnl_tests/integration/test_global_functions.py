# SPDX-License-Identifier: Apache-2.0
"""Modules of TVM that keep the global functions of a prefix."""

import sys

import tvm


def test_functions_that_were_added_since_are_found():
    """TVM's names are listed once, and again after some were added."""
    wanted = {}
    for name in ("first", "second"):
        tvm.register_func(f"dnnl_test_names.{name}", lambda name=name: name)
        wanted[name] = name
        # pylint: disable-next=protected-access
        tvm._ffi._init_api("dnnl_test_names", __name__)
        functions = vars(sys.modules[__name__])
        assert {each: functions[each]() for each in wanted} == wanted


def test_all_functions_of_a_prefix_are_found():
    from tvm.relay.op import _make  # pylint: disable=import-outside-toplevel

    prefix = "relay.op._make."
    names = [
        name.removeprefix(prefix)
        for name in tvm._ffi.registry.list_global_func_names()
        if name.startswith(prefix)
    ]
    assert names and {name for name in names if "." not in name} <= set(vars(_make))
