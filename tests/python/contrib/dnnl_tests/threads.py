# SPDX-License-Identifier: Apache-2.0
"""Calls on several threads at once."""

import threading
from concurrent.futures import ThreadPoolExecutor


def on_threads(work, count=8):
    """Call `work(i)` for each i below `count`, each on a thread of its own, at the same time.

    What one of them raises is raised here: an exception on a thread would fail no test.

    Returns
    -------
    list
        What the calls return, in the order of i.
    """
    together = threading.Barrier(count)

    def start(i):
        together.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))
