"""Each distribution declares what it imports, and everything declared is pinned with a hash."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.setup import members

ROOT = Path(__file__).resolve().parents[2]
ROOMS = members()
NOT_OURS_TO_PIN = {"compression"}
"""Extras that nothing here installs: tests, images and commands do without."""


def project(directory: Path) -> dict[str, Any]:
    return tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))


def name_of(room: Path) -> str:
    return str(project(room)["project"]["name"])


@cache
def owners() -> dict[str, str]:
    """Distribution by importable name: ours by their second part, others as installed."""
    found: dict[str, str] = {
        # Of a namespace, such as opentelemetry, the distribution that the others extend.
        name: canonicalize_name(min(distributions, key=lambda each: (len(each), each)))
        for name, distributions in packages_distributions().items()
        if name != "magnetar"
    }
    for room in ROOMS:
        portion = project(room)["tool"]["uv"]["build-backend"]["module-name"]
        found[portion] = canonicalize_name(name_of(room))
    return found


def declared(room: Path) -> set[str]:
    listed = project(room)["project"].get("dependencies", [])
    return {canonicalize_name(Requirement(line).name) for line in listed}


def optional(room: Path) -> set[str]:
    """What its extras bring: imported only where somebody asked for it, by name or by modules loaded late."""
    extras = project(room)["project"].get("optional-dependencies", {})
    return {canonicalize_name(Requirement(line).name) for lines in extras.values() for line in lines}


def run_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            ahead += node.orelse
        else:
            ahead += ast.iter_child_nodes(node)


def imported(room: Path) -> dict[str, str]:
    """Distribution to one file that imports it."""
    found: dict[str, str] = {}
    for path in sorted((room / "magnetar").rglob("*.py")):
        for node in run_statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            else:
                continue
            for module in modules:
                parts = module.split(".")
                if parts[0] in sys.stdlib_module_names:
                    continue
                key = ".".join(parts[:2]) if parts[0] == "magnetar" else parts[0]
                owner = "protobuf" if module.startswith("google.protobuf") else owners()[key]
                found.setdefault(owner, str(path.relative_to(ROOT)))
    found.pop(canonicalize_name(name_of(room)), None)
    return found


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_distribution_declares_what_it_imports(room: Path) -> None:
    there = declared(room) | optional(room)
    assert {owner: path for owner, path in imported(room).items() if owner not in there} == {}


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_distribution_imports_what_it_declares(room: Path) -> None:
    assert sorted(declared(room) - imported(room).keys()) == []


def pins(path: Path) -> dict[str, str]:
    """Version by name; every requirement must carry a hash."""
    found: dict[str, str] = {}
    for entry in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not entry or entry.lstrip().startswith("#"):
            continue
        match = re.match(r"(\S+?)==([^\s;]+)", entry)
        assert match, f"{path.name} holds something other than a pin: {entry[:80]}"
        assert "--hash=sha256:" in entry, f"{match[1]} has no hash"
        found[canonicalize_name(match[1])] = match[2]
    return found


def test_every_declared_requirement_is_pinned_at_a_version_that_satisfies_it() -> None:
    apart: dict[str, str] = {}
    for group in ("build", "cluster", "deploy", "spark", "tests"):
        apart |= pins(ROOT / f"requirements-{group}.txt")
    pinned = apart | pins(ROOT / "requirements.txt")
    ours = {canonicalize_name(name_of(room)) for room in ROOMS}
    groups = project(ROOT)["dependency-groups"]
    lines = [line for group in ("build", "cluster", "deploy", "dev", "spark") for line in groups[group]]
    for room in ROOMS:
        lines += project(room)["project"].get("dependencies", [])
        extras = project(room)["project"].get("optional-dependencies", {})
        for extra in extras.keys() - NOT_OURS_TO_PIN:
            lines += extras[extra]
    wrong = []
    for line in lines:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name not in ours and not requirement.specifier.contains(pinned.get(name, "0")):
            wrong.append(f"{line}: pinned {pinned.get(name)}; run 'make lock'")
    assert wrong == []


@pytest.mark.parametrize("group", ["bench", "build", "cluster", "deploy", "docs", "spark"])
def test_optional_packages_are_pinned_apart_in_one_version(group: str) -> None:
    apart, always = pins(ROOT / f"requirements-{group}.txt"), pins(ROOT / "requirements.txt")
    ours = {canonicalize_name(name_of(room)) for room in ROOMS}
    for line in project(ROOT)["dependency-groups"][group]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert name in ours or requirement.specifier.contains(apart[name]), line
    shared = apart.keys() & always.keys()
    assert {name: apart[name] for name in shared} == {name: always[name] for name in shared}


def test_what_running_needs_has_nothing_of_tests_and_little_else() -> None:
    """`make run` installs requirements.txt: packages of dependency groups stay out of it."""
    groups = project(ROOT)["dependency-groups"]
    running = pins(ROOT / "requirements.txt")
    ours = {canonicalize_name(name_of(room)) for room in ROOMS}
    needed = {name for room in ROOMS for name in declared(room) | optional(room)}
    for group in ("bench", "build", "cluster", "deploy", "dev", "docs", "spark"):
        names = {canonicalize_name(Requirement(line).name) for line in groups[group]}
        assert not (names - needed - ours) & running.keys(), group
    assert sorted(running.keys() - _needed_by_rooms()) == []


def _needed_by_rooms() -> set[str]:
    """Everything that the distributions need, with what that needs, as installed."""
    found: set[str] = set()
    waiting = {name for room in ROOMS for name in declared(room) | optional(room)}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        with suppress(PackageNotFoundError):
            waiting |= {canonicalize_name(Requirement(line).name) for line in requires(name) or []}
    return found


def test_the_uv_that_setup_fetches_contains_the_build_back_end_that_rooms_ask_for() -> None:
    version = pins(ROOT / "requirements-uv.txt")["uv"]
    for room in ROOMS:
        (back_end,) = project(room)["build-system"]["requires"]
        assert Requirement(back_end).specifier.contains(version), f"{name_of(room)} wants {back_end}"
