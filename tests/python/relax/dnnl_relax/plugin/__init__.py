# SPDX-License-Identifier: Apache-2.0
"""The plug-in as a package, and the commands and programs of this checkout that use it."""
