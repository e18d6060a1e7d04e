"""Runs tests on copies of the tree: as it is, and with one mistake planted at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutations.mistake import Mistake, applied
from tests.mutations.patched import Patched
from tools.setup import members

COPIED: Final = ("cli", "libs", "services", "spark", "tests", "tools", "pyproject.toml")
MISTAKE_SECONDS_MAX: Final = 120.0
"""For the tests of one mistake; on an idle machine they take two."""
SUITE_SECONDS_MAX: Final = 1800.0
"""For all tests that mistakes name, and for a file of mutations."""

CAUGHT: Final = "caught"
SURVIVED: Final = "SURVIVED"
EQUIVALENT: Final = "equivalent"
BROKEN: Final = "BROKEN"
"""The run says nothing: a mistake that does not apply, tests that cannot be collected."""

NO_END: Final = -1
"""In the place of pytest's exit code."""
_PYTEST: Final = (
    "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-W", "ignore"
)  # fmt: skip


class Outcome(NamedTuple):
    """What became of one mistake or mutation."""

    name: str
    what: str
    path: str
    verdict: str
    detail: str
    """The test that caught it, why it is equivalent, or what went wrong."""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.verdict in (CAUGHT, EQUIVALENT)


class Ran(NamedTuple):
    """One run of pytest."""

    code: int
    """pytest's exit code, or NO_END."""
    failed: list[str]
    """Names of tests, in the order in which they failed."""
    passed: list[str]
    said: str
    """What could not be collected or set up, or else the last line of the output."""


class TreeCopy:
    """A copy of the tree whose packages come before the installed ones."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        root.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "node_modules", "target")
        for name in COPIED:
            if (source / name).is_dir():
                shutil.copytree(source / name, root / name, ignore=ignored, symlinks=True)
            else:
                shutil.copy2(source / name, root / name)
        self._packages = [str(root / room.relative_to(source)) for room in members()]

    def run(self, tests: Sequence[str], seconds_max: float, *, first: bool, bytecode: bool = True) -> Ran:
        """Run pytest on these tests; `first` stops at the first failure."""
        report = self.root / "results.xml"
        report.unlink(missing_ok=True)
        stop = ("--maxfail=1",) if first else ()
        try:
            # In this session, so that an interrupt of the run reaches the tests.
            ended = subprocess.run(
                [sys.executable, *_PYTEST, *stop, f"--junitxml={report}", *tests],
                env=self._environment(bytecode), cwd=self.root, timeout=seconds_max,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Ran(NO_END, [], [], f"the tests did not end within {seconds_max:g} s")
        last = (ended.stdout.strip().splitlines() or ["pytest said nothing"])[-1]
        failed, passed, errors = _results(report) if report.exists() else ([], [], [])
        return Ran(ended.returncode, failed, passed, errors[0] if errors else last)

    @contextmanager
    def planted(self, mistake: Mistake) -> Iterator[None]:
        """The copy with this mistake in it. Raises ValueError when it does not fit."""
        path = self.root / mistake.path
        before, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(applied(mistake, before), encoding="utf-8")
        # Bytecode of the file as it was must not pass for this one.
        os.utime(path, (times.st_atime + 10, times.st_mtime + 10))
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def check_imports(self, modules: Sequence[str]) -> None:
        """Raise RuntimeError unless these modules come from the copy."""
        code = (
            f"import importlib\nfor name in {list(modules)!r}: print(importlib.import_module(name).__file__)"
        )
        found = subprocess.run(
            [sys.executable, "-c", code],
            env=self._environment(True), cwd=self.root, capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        if others := [path for path in found if not Path(path).is_relative_to(self.root)]:
            raise RuntimeError(f"the copy of the tree is not what is tested: {others[0]} was imported")

    def _environment(self, bytecode: bool) -> Mapping[str, str]:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(self._packages)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return environment


def _results(report: Path) -> tuple[list[str], list[str], list[str]]:
    """(failed, passed, what could not be collected or set up)"""
    failed: list[str] = []
    passed: list[str] = []
    errors: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name") or ""
        if (error := case.find("error")) is not None:
            errors.append(f"{name or case.get('classname')}: {error.get('message')}".partition("\n")[0])
        elif case.find("failure") is not None:
            failed.append(name)
        elif case.find("skipped") is None:
            passed.append(name)
    return failed, passed, errors


def module_of(path: str) -> str:
    """The module that a file of a package is."""
    return ".".join(Path(path[path.index("magnetar/") :]).with_suffix("").parts)


def try_mistake(copy: TreeCopy, mistake: Mistake) -> Outcome:
    """Plant it and run the tests that have to fail."""
    if mistake.equivalent:
        return Outcome(mistake.name, mistake.what, mistake.path, EQUIVALENT, mistake.equivalent)
    start = time.monotonic()
    verdict, detail = CAUGHT, ""
    try:
        with copy.planted(mistake):
            tests = copy.run(mistake.tests, MISTAKE_SECONDS_MAX, first=True, bytecode=False)
    except ValueError as error:
        verdict, detail = BROKEN, str(error)
    else:
        if tests.failed:
            detail = tests.failed[0]
        elif tests.code == 0:
            verdict, detail = SURVIVED, f"{len(tests.passed)} tests passed"
        elif tests.code == NO_END:
            detail = tests.said
        else:
            verdict, detail = BROKEN, tests.said
    return Outcome(mistake.name, mistake.what, mistake.path, verdict, detail, time.monotonic() - start)


def try_suite(copy: TreeCopy, path: str, mutations: Sequence[Patched]) -> list[Outcome]:
    """Run a file of mutations; each of its tests passes when its mutation was noticed."""
    start = time.monotonic()
    chosen = " or ".join(each.name for each in mutations)
    tests = copy.run([path, "-k", chosen], SUITE_SECONDS_MAX, first=False)
    seconds = (time.monotonic() - start) / max(1, len(mutations))
    outcomes = []
    for each in mutations:
        failed = [name for name in tests.failed if _is_of(name, each.name)]
        passed = [name for name in tests.passed if _is_of(name, each.name)]
        if failed:
            verdict, detail = SURVIVED, failed[0]
        elif passed:
            verdict, detail = CAUGHT, passed[0]
        else:
            verdict, detail = BROKEN, tests.said
        outcomes.append(Outcome(each.name, each.what, path, verdict, detail, seconds))
    return outcomes


def _is_of(test: str, mutation: str) -> bool:
    # pytest numbers the cases of a mutation that is looked for under several kinds of trouble.
    return re.search(rf"\[{re.escape(mutation)}\d*(-.*)?\]$", test) is not None
