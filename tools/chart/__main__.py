"""Generate files from the chart's values: `make docs`; `--check` fails when a committed file differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.chart.reference import PAGE, page
from tools.chart.schema import schema
from tools.chart.values_file import CHART, ROOT, VALUES, read_values


def files() -> dict[Path, str]:
    """Expected content of the files."""
    values = read_values(VALUES.read_text(encoding="utf-8"))
    return {CHART / "values.schema.json": schema(values), PAGE: page(values)}


def main() -> None:
    """Write outdated files, or report them."""
    parser = argparse.ArgumentParser(prog="python -m tools.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    check = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if not check:
        for path, text in stale:
            path.write_text(text, encoding="utf-8")
    elif stale:
        names = ", ".join(path.relative_to(ROOT).as_posix() for path, _ in stale)
        sys.exit(f"what follows from the chart's values is out of date, run 'make docs': {names}")


if __name__ == "__main__":
    main()
