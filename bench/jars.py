"""Jars that a pom.xml names, fetched by Maven once and kept outside of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "MAGNETAR_BENCH_CACHE"
DOWNLOAD_SECONDS_MAX: Final = 1_800


def jars_directory(name: str) -> Path:
    """Return the directory of these jars; it may not exist yet."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar-bench"
    return Path(os.environ.get(CACHE_VARIABLE) or default) / name


def version_in(pom: Path) -> str:
    """The version of the last dependency that the file names."""
    return pom.read_text().split("<version>")[-1].split("<")[0]


def fetch_jars(name: str, pom: Path, what: str, say: Callable[[str], None]) -> Path | str:
    """The directory of the jars, fetched when they were not there; or the reason why there are none."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"`{tool}` is not installed"
    jars = jars_directory(name)
    if jars.is_dir():
        return jars
    say(f"fetching {what} with Maven into {jars.parent}, once")
    partial = jars.with_name(f"{name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={partial}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not finish within {DOWNLOAD_SECONDS_MAX} s"
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        return f"Maven failed: {errors[0] if errors else done.stderr[-300:]}"
    partial.rename(jars)
    return jars
