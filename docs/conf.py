# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Settings of Sphinx. `./dev.py docs` runs it, in the environment that has TVM with oneDNN."""

import re
from pathlib import Path

import tlcpack_sphinx_addon

project = "oneDNN 3 for TVM"
author = "the contributors"
copyright = "the contributors"  # noqa: A001

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "scripts.docs.relax_api",
    "sphinxcontrib.programoutput",
]
exclude_patterns = ["examples", "README.md"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
nitpicky = True
# What the signatures name and TVM's own documentation describes.
nitpick_ignore_regex = [
    ("py:.*", r"(Difference|tvm\.(IRModule|ir|nd|relay|runtime|target)\b.*|relay\..*|DFPattern)")
]
autodoc_typehints = "none"  # numpydoc shows the types of the docstrings
autosummary_generate = False  # numpydoc loads it, no page uses it
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "sphinx_rtd_theme"
html_title = project
templates_path = ["_templates", tlcpack_sphinx_addon.get_templates_path()]
html_static_path = [tlcpack_sphinx_addon.get_static_path(), "_static"]
html_css_files = ["css/tlcpack_theme.css", "css/pages.css"]
html_js_files = ["js/tlcpack_theme.js"]
html_context = {
    # Its breadcrumbs read these, also where there is no page to link to.
    **dict.fromkeys(("github_user", "github_repo", "github_version"), ""),
    "header_logo": "_static/logo.svg",
    "header_links": [
        ("Relax", "relax.html"),
        ("Relay", "quick_start.html"),
        ("Supported ops", "supported_ops.html"),
        ("API", "api.html"),
    ],
    "header_dropdown": {
        "name": "Projects",
        "items": [
            ("Apache TVM", "https://tvm.apache.org/docs/"),
            ("oneDNN", "https://uxlfoundation.github.io/oneDNN/"),
        ],
    },
    "footer_copyright": "oneDNN 3 for TVM, licensed under Apache-2.0",
    "footer_note": "Apache TVM is a trademark of the Apache Software Foundation. "
    "oneDNN is a project of the UXL Foundation. This project is independent of both.",
}
html_show_sourcelink = False
html_show_sphinx = False


def remove_remote_fonts(app, error):
    """Remove the fonts that the add-on imports from another host; `pages.css` names local ones."""
    path = Path(app.outdir, "_static", "css", "tlcpack_theme.css")
    if not error:
        path.write_text(re.sub(r'@import url\("https?:.*?"\);', "", path.read_text()))


def setup(app):
    """Connect the function above."""
    app.connect("build-finished", remove_remote_fonts)
