"""Write the dashboards: `make docs`; `--check` fails when a committed file differs."""

from __future__ import annotations

import argparse
import sys

from tools.dashboards.catalog import ROOT, files


def main() -> None:
    """Write outdated files, or report them."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    check = parser.parse_args().check
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files()[path])
    if check and stale:
        names = ", ".join(path.relative_to(ROOT).as_posix() for path in stale)
        sys.exit(f"dashboards are out of date, run 'make docs': {names}")


if __name__ == "__main__":
    main()
