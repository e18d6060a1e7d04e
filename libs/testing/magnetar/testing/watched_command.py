"""Runs the `magnetar` command in this process, which ends when its standard input does.

`python -m magnetar.testing.watched_command [--remove DIRECTORY] ARGUMENTS...`. The process that starts it
holds the other end of standard input, a pipe, and the system closes that when the process ends, however it
ends. Unlike a parent-death signal, this does not depend on the thread that started the command.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import Final

REMOVE: Final = "--remove"
"""Option in front of the command: the directory to remove when standard input ends."""

ORPHANED: Final = 70
"""Exit code after the end of standard input."""


def end_with_standard_input(directory: str | None) -> None:
    """Block until standard input ends, then remove `directory` and end the process at once."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    os._exit(ORPHANED)


def main() -> None:
    """Run the command that the arguments name."""
    arguments, directory = sys.argv[1:], None
    if arguments[:1] == [REMOVE]:
        directory, arguments = arguments[1], arguments[2:]
    threading.Thread(target=end_with_standard_input, args=(directory,), name="orphan", daemon=True).start()
    from magnetar.cli.main import main as magnetar

    magnetar(arguments, prog_name="magnetar")


if __name__ == "__main__":
    main()
