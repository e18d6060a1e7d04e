"""speedups/modules.txt: what it names exists, and no interpreted class inherits from a compiled one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speedups.build import ROOT, modules

INTERFACES = {"Protocol", "NamedTuple", "Generic", "Enum", "IntEnum", "StrEnum"}


def product_sources() -> Iterator[Path]:
    for room in ("cli", "libs", "services", "spark"):
        yield from (ROOT / room).rglob("magnetar/**/*.py")


def classes_of(source: Path) -> Iterator[tuple[str, set[str]]]:
    """The classes of a module, each with the names of its bases."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ClassDef):
            bases = {base.value if isinstance(base, ast.Subscript) else base for base in node.bases}
            yield node.name, {base.id for base in bases if isinstance(base, ast.Name)}


def imports_of(source: Path) -> set[tuple[str, str]]:
    """Names that a module imports, as (module, name)."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def test_each_module_has_one_source() -> None:
    assert len(modules()) > 50


def test_classes_and_their_subclasses_are_compiled_together() -> None:
    """mypyc finds out only when such a class is instantiated."""
    compiled = modules()
    native = {
        (module, name)
        for module, source in compiled.items()
        for name, bases in classes_of(ROOT / source)
        if not bases & INTERFACES
    }
    sources = {ROOT / source for source in compiled.values()}
    apart = []
    for source in product_sources():
        if source in sources:
            continue
        compiled_names = {name for module, name in imports_of(source) & native}
        apart += [
            f"{source.relative_to(ROOT)}: {name}"
            for name, bases in classes_of(source)
            if bases & compiled_names
        ]
    assert apart == [], "add these modules to speedups/modules.txt, or take those of their bases away"


@pytest.mark.nightly
def test_mypyc_translates_every_module() -> None:
    """`make test-compiled` compiles the C as well, and runs the suites on it."""
    command = [sys.executable, str(ROOT / "speedups" / "build.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
