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

project = "oneDNN 3 for TVM"
author = "the contributors"
copyright = "the contributors"  # noqa: A001

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
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

html_theme = "furo"
html_title = project
html_theme_options = {
    # Monospaced letters of this size are as large as those of the text.
    "light_css_variables": {"code-font-size": "0.925em"},
    "dark_css_variables": {"code-font-size": "0.925em"},
    "footer_icons": [],
}
html_static_path = ["_static"]
html_css_files = ["css/pages.css"]
html_show_sourcelink = False
html_show_sphinx = False
