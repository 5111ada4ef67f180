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
"""Pages in a Chromium without a window, for the picture of a report in the documents."""

import shutil
import subprocess
import tempfile

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def browse(path, text, *words, size=(1500, 1000)):
    """Open a page.

    Parameters
    ----------
    path : Path
        Where to write the page.
    text : str
        The page.
    words : str
        What Chromium is to do, such as "--screenshot=FILE".
    size : tuple[int, int]
        Width and height of the window in pixels.

    Raises
    ------
    subprocess.SubprocessError
        Chromium failed, or took three minutes.
    """
    path.write_text(text, encoding="utf-8")
    # Chromium keeps a profile even so; a path of its own, as the user may have one open.
    with tempfile.TemporaryDirectory() as profile:
        command = [find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={profile}", "--window-size={},{}".format(*size), *words]
        subprocess.run([*command, path.as_uri()], capture_output=True, timeout=180, check=True)
