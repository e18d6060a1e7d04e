"""The repository's own rules: what a reviewer would otherwise have to look for each time."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.common import errors

from tools.setup import members

ROOT = Path(__file__).resolve().parents[2]
ROOMS = members()
SKIPPED = {".git", ".venv", "data", "results", "__pycache__", "dist"}
NOT_COMMITTED = {"uv.lock", ".git"}  # where `git worktree` made the tree, .git is a file
TEXT = {"", ".py", ".pyi", ".md", ".toml", ".txt", ".tsv", ".proto", ".yaml", ".yml", ".svg", ".cfg"}
LINES_MAX = 700


def files() -> Iterator[Path]:
    """Every text file a commit could hold."""
    waiting = [ROOT]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.is_dir():
                if path.name not in SKIPPED and not path.name.endswith(
                    ("_cache", ".egg-info", ".hypothesis")
                ):
                    waiting.append(path)
            elif path.suffix in TEXT and path.name not in NOT_COMMITTED:
                yield path


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sources() -> list[Path]:
    """Python written by hand, tests included."""
    return [path for path in files() if path.suffix == ".py" and not path.name.endswith("_pb2.py")]


def lines_with(pattern: str, paths: Iterator[Path] | list[Path]) -> list[str]:
    found = []
    for path in paths:
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{named(path)}:{number}: {line.strip()[:100]}")
    return found


def test_the_namespace_has_no_init_file() -> None:
    assert [named(path) for room in ROOMS for path in room.glob("magnetar/__init__.py*")] == []
    assert len(ROOMS) > 8


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_every_room_is_a_typed_distribution_that_says_what_it_is_for(room: Path) -> None:
    (portion,) = (path for path in (room / "magnetar").iterdir() if path.is_dir())
    assert (portion / "py.typed").exists()
    readme = (room / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"[.:](?=\s)", readme)) >= 3, "what it does, what it promises, what it does not do"


def test_no_source_is_longer_than_a_reader_s_patience() -> None:
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_every_module_says_why_it_exists() -> None:
    ours = ("cli/", "libs/", "services/", "spark/", "proto/", "bench/")
    rooms = [path for path in sources() if named(path).startswith(ours)]
    silent = [named(path) for path in rooms if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert silent == []


def test_nothing_is_left_for_later() -> None:
    assert lines_with(r"\b(TODO|FIXME|XXX)\b", sources()) == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    machine = r"(?<![\w.])/(home|root|Users|work)/\w|/tmp/brief|\.\./shared"
    assert lines_with(machine, files()) == []


def test_every_error_says_when_it_is_raised() -> None:
    waiting = [errors.MagnetarError]
    silent = []
    while waiting:
        error = waiting.pop()
        waiting.extend(error.__subclasses__())
        if error.__module__ == errors.__name__ and not error.__dict__.get("__doc__"):
            silent.append(error.__name__)
    assert silent == []


def test_generated_code_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "proto/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def room_modules() -> list[Path]:
    return [path for path in sources() if named(path).startswith(("cli/", "libs/", "services/", "spark/"))]


def module_name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    return ".".join(parts[parts.index("magnetar") :]).removesuffix(".__init__")


@pytest.mark.full
def test_no_module_is_left_that_nothing_imports() -> None:
    """What is neither an entry point nor imported outside of tests is dead."""
    modules = room_modules()
    scripts = "".join((room / "pyproject.toml").read_text(encoding="utf-8") for room in ROOMS)
    used = {entry.partition(":")[0] for entry in re.findall(r'= "(magnetar\.[\w.]+:\w+)"', scripts)}
    # Applications import what the page of the client has in its examples, which a test runs.
    used |= set(re.findall(r"from (magnetar[\w.]+) import", (ROOT / "docs/client.md").read_text("utf-8")))
    for path in sources():
        if named(path).startswith("tests/"):
            continue
        text = path.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text and path in modules:
            used.add(module_name(path))  # started with `python -m`
        used |= set(re.findall(r'import_module\("([\w.]+)"\)', text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    started = ("__init__.py", "__main__.py")
    unused = {module_name(path) for path in modules if path.name not in started} - used
    # What a simulation is made of, and what tests of applications use: that is what these rooms are for.
    for_others = ("magnetar.sim.", "magnetar.testing.", "magnetar.client.telemetry")
    assert {name for name in unused if not name.startswith(for_others)} == set()


def test_unit_tests_lie_under_the_path_of_what_they_test() -> None:
    packages = {module_name(path) for path in room_modules() if path.name == "__init__.py"}
    unit = ROOT / "tests/unit"
    directories = {
        ".".join(("magnetar", *path.parent.relative_to(unit).parts)) for path in unit.rglob("test_*.py")
    }
    assert directories - packages - {"magnetar.bench"} == set()
