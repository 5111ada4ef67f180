# SPDX-License-Identifier: Apache-2.0
"""The report of the oneDNN backend as a page; no part of TVM.

In this checkout the folder above is on Python's path, and the wheel has the package beside TVM.
"""

from .page import make_page

__all__ = ["make_page"]
