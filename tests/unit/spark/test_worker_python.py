"""`register` names what to set when the workers of a local session have another Python."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.common.errors import ConfigError
from magnetar.spark.worker_python import check_worker_python


def session(master: str, python: str, files: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(_sc=SimpleNamespace(master=master, pythonExec=python, _python_includes=files))


def test_the_driver_s_own_python_and_workers_elsewhere_are_not_asked() -> None:
    check_worker_python(session("local[2]", sys.executable))
    check_worker_python(session("spark://host:7077", "/no/such/python"))
    check_worker_python(session("local[2]", "/no/such/python", ("magnetar.zip",)))
    check_worker_python(SimpleNamespace())  # type: ignore[arg-type]


def test_a_python_without_the_packages_is_named_with_what_to_set(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(
        ConfigError, match=r"python3\) cannot load magnetar.spark: .*No module named"
    ) as found:
        check_worker_python(session("local[1]", str(other)))
    assert f"set PYSPARK_PYTHON={sys.executable}" in str(found.value)


def test_a_python_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        check_worker_python(session("local", "/no/such/python"))


def test_another_path_to_a_python_that_has_all(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(link.stat().st_mode | stat.S_IXUSR)
    check_worker_python(session("local[*]", str(link)))
