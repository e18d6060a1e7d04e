"""Starts magnetar-spark jobs by replacing this process; this package does not import magnetar-spark.

A job runs in this command's Python, or under spark-submit if a Spark cluster is named. It replaces this
process, so signals, output and exit code are the job's.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

PACKAGE = "magnetar.spark"
PACKAGES = ("pyspark", "pyarrow")
"""Packages of magnetar-spark that jobs need."""


class NoSpark(click.ClickException):
    """magnetar-spark, or one of its dependencies, is not installed."""

    exit_code = 3


def start(
    module: str,
    arguments: Sequence[str],
    *,
    master: str = "",
    conf: Sequence[str] = (),
    deploy_mode: str = "",
    needed: Sequence[str] = PACKAGES,
) -> NoReturn:
    """Replace this process by `python -m magnetar.spark.<module> arguments`, or by spark-submit for a
    cluster.

    Raises NoSpark.
    """
    command = command_of(module, arguments, master=master, conf=conf, deploy_mode=deploy_mode, needed=needed)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], command)


def command_of(
    module: str,
    arguments: Sequence[str],
    *,
    master: str = "",
    conf: Sequence[str] = (),
    deploy_mode: str = "",
    needed: Sequence[str] = PACKAGES,
) -> list[str]:
    """The command line of `start`. Raises NoSpark."""
    directory = package_directory(needed)
    if not master or master.startswith("local"):
        local = ["--master", master] if master else []
        for each in conf:
            local += ["--conf", each]
        return [sys.executable, "-m", f"{PACKAGE}.{module}", *arguments, *local]
    submit = spark_submit()
    if submit is None:
        raise NoSpark(
            f"spark-submit not found, needed for master {master!r}: install pyspark or Spark, and put "
            "its bin "
            "directory into PATH"
        )
    command = [submit, "--master", master]
    if deploy_mode:
        command += ["--deploy-mode", deploy_mode]
    for each in conf:
        command += ["--conf", each]
    script = directory / Path(*module.split("."))
    script = script / "__main__.py" if script.is_dir() else script.with_suffix(".py")
    return [*command, str(script), *arguments]


def package_directory(needed: Sequence[str] = PACKAGES) -> Path:
    """Return the directory of the installed magnetar-spark. Raises NoSpark, with the remedy, also without one
    of the packages `needed`.
    """
    found = find_spec(PACKAGE)
    places = [] if found is None else list(found.submodule_search_locations or ())
    missing = [name for name in needed if find_spec(name) is None]
    if not places or missing:
        what = "magnetar-spark is" if not places else f"{' and '.join(missing)} of magnetar-spark are"
        raise NoSpark(
            f"{what} not installed in {sys.prefix}: run `make setup-spark` in a clone, or install "
            "magnetar-spark from wheels (`make dist`)"
        )
    return Path(places[0])


def spark_submit() -> str | None:
    """Return the command next to this Python, or the one in PATH."""
    return shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or shutil.which("spark-submit")
