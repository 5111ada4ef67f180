# SPDX-License-Identifier: Apache-2.0
"""The directive `relax-function`: autodoc for `tvm_dnnl`, which cannot be imported beside Relay.

It reads the sources instead of importing them.
"""

import ast

from docutils import nodes
from docutils.statemachine import StringList
from numpydoc.docscrape_sphinx import SphinxFunctionDoc
from sphinx.util.docutils import SphinxDirective

from scripts.layout import ROOT

PACKAGE = ROOT / "python" / "tvm" / "relax" / "backend" / "contrib" / "dnnl.py"


def find_function(name, path=PACKAGE):
    """Return the definition of a function that a module defines or imports."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [each.name for each in node.names]:
            folder = path.parents[node.level - 1] if node.level else ROOT / "python"
            return find_function(name, folder.joinpath(*node.module.split(".")).with_suffix(".py"))
    raise ValueError(f"{path} defines and imports no function {name}")


class RelaxFunction(SphinxDirective):
    """Describe a function of `tvm_dnnl` by its docstring."""

    required_arguments = 1

    def run(self):
        """Return the nodes of the signature and of the docstring's sections."""
        function = find_function(self.arguments[0])
        for argument in ast.walk(function.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None  # The docstring has the types.
        text = str(SphinxFunctionDoc(None, doc=ast.get_docstring(function), config={}))
        lines = [f".. py:function:: tvm_dnnl.{function.name}({ast.unparse(function.args)})", ""]
        lines += ["   " + line for line in text.splitlines()]
        parent = nodes.Element()
        source = f"docstring of tvm_dnnl.{function.name}"
        self.state.nested_parse(StringList(lines, source), self.content_offset, parent)
        return parent.children


def setup(app):
    """Register the directive."""
    app.add_directive("relax-function", RelaxFunction)
    return {"parallel_read_safe": True}
