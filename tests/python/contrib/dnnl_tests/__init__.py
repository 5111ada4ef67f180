# SPDX-License-Identifier: Apache-2.0
"""Tests of the DNNL backend, in a folder for each stage, and what they share.

`test_dnnl.py` beside this folder is the file to run first. Modules that are no tests are helpers;
the random graphs (`graphs`), the networks (`models`) and the table of ops (`report.support`) also
serve the command line of this project.
"""
