"""`make dist`: the wheels of all distributions, as they install into an empty environment."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.setup import ROOT, UV, uv_environment

NOT_OF_THE_COMMAND = ("magnetar_sim-", "magnetar_spark-", "magnetar_testing-")
"""Wheels that magnetar-cli[all] does not need."""


def build(directory: Path) -> list[Path]:
    """Build the wheel of each distribution into an empty or new directory. Ends the process on a failure."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("magnetar_*.whl"):
        old.unlink()
    command = [
        str(UV),
        "build",
        "--all-packages",
        "--wheel",
        "--quiet",
        "--out-dir",
        str(directory),
        str(ROOT),
    ]
    done = subprocess.run(command, env=uv_environment(), stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        sys.exit(f"dist: wheels cannot be built (exit code {done.returncode}); see the lines above")
    return sorted(directory.glob("magnetar_*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheels of all distributions.")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="default ./dist")
    directory: Path = parser.parse_args().directory
    wheels = build(directory)
    (cli,) = (wheel for wheel in wheels if wheel.name.startswith("magnetar_cli-"))
    print(f"dist: {len(wheels)} wheels in {directory}")
    print("dist: to install the command with all servers into another environment:")
    # Each by its path: an index might have distributions of others under these names.
    needed = [each for each in wheels if each != cli and not each.name.startswith(NOT_OF_THE_COMMAND)]
    print(f"  pip install '{cli}[all]' {' '.join(map(str, needed))}")


if __name__ == "__main__":
    main()
