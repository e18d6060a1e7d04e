"""--print-config: every setting, its value, and where the value came from."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from magnetar.common.config.loader import DEFAULT_ORIGIN, describe, load
from magnetar.common.errors import ConfigError
from magnetar.standalone.config import StandaloneConfig


def print_config(files: Sequence[Path], overrides: Sequence[str]) -> int:
    """Print the table; returns the exit code. On a terminal it is drawn, elsewhere it is tab-separated."""
    try:
        loaded = load(StandaloneConfig, files=files, environ=os.environ, overrides=overrides)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    rows = describe(loaded)
    if not sys.stdout.isatty():
        print("key\tvalue\torigin")
        for row in rows:
            print("\t".join(row))
        return 0

    from rich.console import Console
    from rich.table import Table

    table = Table("key", "value", "origin", title="Configuration of magnetar standalone")
    for key, value, origin in rows:
        table.add_row(key, value, origin, style="dim" if origin == DEFAULT_ORIGIN else "bold")
    Console().print(table)
    return 0
