"""Starts what is in magnetar-spark: in a process of its own, since nothing here imports it.

A job runs in the Python that runs this command, or under spark-submit where a Spark cluster is named. It
takes this process's place: signals, output and exit code are its own.
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


class NoSpark(click.ClickException):
    """magnetar-spark, or what it stands on, is not installed here."""

    exit_code = 3


def start(
    module: str,
    arguments: Sequence[str],
    *,
    master: str = "",
    conf: Sequence[str] = (),
    deploy_mode: str = "",
) -> NoReturn:
    """Become `python -m magnetar.spark.<module> arguments`; under spark-submit when `master` is no local one.

    Raises NoSpark.
    """
    command = command_of(module, arguments, master=master, conf=conf, deploy_mode=deploy_mode)
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
) -> list[str]:
    """The command line of `start`. Raises NoSpark."""
    directory = package_directory()
    if not master or master.startswith("local"):
        local = ["--master", master] if master else []
        for each in conf:
            local += ["--conf", each]
        return [sys.executable, "-m", f"{PACKAGE}.{module}", *arguments, *local]
    submit = spark_submit()
    if submit is None:
        raise NoSpark(
            f"there is no spark-submit to reach {master!r} with: install pyspark or Spark, and put its bin "
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


def package_directory() -> Path:
    """Where magnetar-spark is installed. Raises NoSpark, with what to do."""
    found = find_spec(PACKAGE)
    places = [] if found is None else list(found.submodule_search_locations or ())
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if not places or missing:
        what = "magnetar-spark is" if not places else f"{' and '.join(missing)} of magnetar-spark are"
        raise NoSpark(
            f"{what} not installed in {sys.prefix}: pip install magnetar-spark (in a clone: make setup-spark)"
        )
    return Path(places[0])


def spark_submit() -> str | None:
    """The command beside this Python, or the one in PATH."""
    return shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or shutil.which("spark-submit")
