# SPDX-License-Identifier: Apache-2.0
"""Scripts that were written for TVM's own backend are told what to call instead."""

import pathlib
import re

import pytest
import tvm
import tvm.testing
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.integration.coming_from_tvm import REPLACED

PATH = pathlib.Path(__file__).parents[5] / "docs" / "coming_from_tvm.md"


@pytest.mark.parametrize("name", ["legalize_group_conv", "alter_conv", "prune_dnnl_subgraphs"])
def test_attribute(name):
    with pytest.raises(AttributeError) as error:
        getattr(dnnl, name)
    assert "call `partition_for_dnnl(mod, params)`" in str(error.value)
    assert REPLACED[name] in str(error.value)
    assert not hasattr(dnnl, name)


def test_import():
    """Python replaces the message of an AttributeError here."""
    with pytest.raises(ImportError, match="call `partition_for_dnnl") as error:
        from tvm.relay.op.contrib.dnnl import (  # noqa: F401  # pylint: disable=no-name-in-module
            rewrite_layer_norm,
        )
    assert error.value.name == "rewrite_layer_norm"


def test_any_other_name():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
        dnnl.nonsense  # noqa: B018  # pylint: disable=pointless-statement
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        from tvm.relay.op.contrib.dnnl import (  # noqa: F401  # pylint: disable=no-name-in-module
            nonsense,
        )


def test_nothing_that_is_there_is_said_to_be_gone():
    assert not [name for name in REPLACED if name in vars(dnnl)]


def section(title):
    """Return the rows of the tables of a section of the page."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PATH.read_text("utf-8"), re.M | re.S)
    return dict(re.findall(r"^\| `(.*?)` \| (.*) \|$", text, re.M))


@pytest.mark.skipif(not PATH.exists(), reason="a TVM source tree has no docs of ours")
def test_page():
    rows = section("Python")
    assert {name: rows[name] for name in REPLACED} == REPLACED
    kept = {"pattern_table", "legalize_qnn_for_dnnl"}
    assert set(rows) - set(REPLACED) == kept <= set(dnnl.__all__)
    for name, text in section("Packed functions").items():
        function = tvm.get_global_func(name, allow_missing=True)
        assert (function is not None) == (text == "unchanged"), name


if __name__ == "__main__":
    tvm.testing.main()
