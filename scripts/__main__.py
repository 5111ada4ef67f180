# SPDX-License-Identifier: Apache-2.0
"""A command that imports tvm, in the environment that `./dev.py` has prepared for it."""

import sys

from scripts import cli
from scripts.errors import SetupError

if __name__ == "__main__":
    try:
        sys.exit(cli.into_a_pipe(cli.run)(sys.argv[1:]))
    except SetupError as error:
        sys.exit(f"\n{error}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted")
