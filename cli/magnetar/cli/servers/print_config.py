"""--print-config: prints every setting with its value and source."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from magnetar.common.config.loader import DEFAULT_ORIGIN, describe, load
from magnetar.common.errors import ConfigError
from magnetar.common.runtime import speedups


def print_config(
    name: str, settings_class: type[Any], files: Sequence[Path], overrides: Sequence[str]
) -> int:
    """Print the table and return the exit code. It is drawn on a terminal; otherwise, and without rich, it is
    tab-separated, and what code runs is said on standard error."""
    try:
        loaded = load(settings_class, files=files, environ=os.environ, overrides=overrides)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    rows = describe(loaded)
    if not sys.stdout.isatty() or find_spec("rich") is None:
        print("key\tvalue\torigin")
        for row in rows:
            print("\t".join(row))
        print(f"code: {speedups.description()}", file=sys.stderr)
        return 0

    from rich.console import Console
    from rich.table import Table

    table = Table(
        "key",
        "value",
        "origin",
        title=f"Configuration of magnetar {name}",
        caption=f"code: {speedups.description()}",
    )
    for key, value, origin in rows:
        table.add_row(key, value, origin, style="dim" if origin == DEFAULT_ORIGIN else "bold")
    Console().print(table)
    return 0
