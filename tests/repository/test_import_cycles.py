"""Imports go one way: within each package, the modules and packages in it import each other without a cycle.

Read from the syntax tree, so imports for type checkers and imports inside functions count like any other. As
each package is looked at with its parts as wholes, neither modules nor rooms can import in a circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("libs", "services", "cli", "spark")

Graph = Mapping[str, set[str]]

KNOWN: set[str] = set()
"""Packages whose cycles are being taken apart; none may be added."""


def modules() -> dict[str, Path]:
    """Every module of the distributions, by its dotted name; a package's name stands for its __init__."""
    found = {}
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "magnetar" in parts:
                name = ".".join(parts[parts.index("magnetar") :])
                found[name.removesuffix(".__init__")] = path
    return found


def imported(module: str, tree: ast.AST, known: Iterable[str]) -> Iterator[str]:
    """The known modules that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                origin = ".".join([*module.split(".")[: -node.level], *filter(None, [node.module])])
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                if name in known:
                    yield name
                elif origin in known:
                    yield origin


@cache
def import_graph() -> dict[str, set[str]]:
    known = modules()
    return {
        name: set(imported(name, ast.parse(path.read_text(encoding="utf-8")), known)) - {name}
        for name, path in known.items()
    }


def parts_of(package: str, graph: Graph) -> dict[str, set[str]]:
    """The imports among the parts of a package: its modules, its packages as wholes, and its __init__."""
    depth = package.count(".") + 2
    parts: dict[str, set[str]] = {}

    def part(module: str) -> str | None:
        if module == package:
            return f"{package}.__init__"
        return ".".join(module.split(".")[:depth]) if module.startswith(f"{package}.") else None

    for module, targets in graph.items():
        at = part(module)
        if at is not None:
            parts.setdefault(at, set()).update(filter(None, map(part, targets)))
    for at, targets in parts.items():
        targets.discard(at)
    return parts


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of nodes that reach each other (Tarjan's strongly connected components of two or more)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


PACKAGES = sorted({name.rpartition(".")[0] for name in modules() if "." in name} - {""})


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
def test_the_parts_of_a_package_import_one_way(package: str) -> None:
    found = cycles(parts_of(package, import_graph()))
    if package in KNOWN and found:
        return
    assert found == []


def test_every_distribution_is_read() -> None:
    assert {"magnetar.broker", "magnetar.common", "magnetar.ledger", "magnetar.spark"} <= set(PACKAGES)
    assert sum(map(len, import_graph().values())) > 1_000


def test_imports_for_type_checkers_and_in_functions_count() -> None:
    tree = ast.parse(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from a.b import C\n"
        "def f() -> None:\n    import a.d\n    from a import e, other\n    from . import f\n"
    )
    assert set(imported("a.g", tree, {"a", "a.b", "a.d", "a.e", "a.f"})) == {"a", "a.b", "a.d", "a.e", "a.f"}


def test_a_cycle_of_packages_is_found_although_their_modules_have_none() -> None:
    graph = {"p.a.x": {"p.b.x"}, "p.b.x": set(), "p.b.y": {"p.a.y"}, "p.a.y": set(), "p.c": {"p.a.x"}}
    assert cycles(graph) == []
    assert cycles(parts_of("p", graph)) == [["p.a", "p.b"]]
    assert cycles(parts_of("p.a", graph)) == []
