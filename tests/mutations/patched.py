"""Mutations that the suites plant themselves, one test each: listed here by reading their files.

Such a file has a list MUTATIONS of `noticed(mutation, ...)` or `(mutation, ...)` and one test over it, which
passes when the mutation was noticed.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

FILES: Final = (
    "tests/simulation/test_mutations.py",
    "tests/simulation/test_garbage_mutations.py",
    "tests/simulation/quorum/test_quorum_mutations.py",
    "tests/simulation/quorum/test_rarer_mutations.py",
    "tests/simulation/test_managed_ledger_mutations.py",
    "tests/simulation/test_cold_mutations.py",
    "tests/simulation/test_schema_mutations.py",
    "tests/simulation/test_compaction_mutations.py",
    "tests/simulation/test_coordinator_mutations.py",
    "tests/property/broker/test_dispatcher_mutations.py",
)


class Patched(NamedTuple):
    """A mutation of one of these files."""

    path: str
    name: str
    what: str


def patched(root: Path) -> list[Patched]:
    """All of them, in the order of their files."""
    return [mutation for path in FILES for mutation in _of(root, path)]


def _of(root: Path, path: str) -> list[Patched]:
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    docs = {
        node.name: (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    # One mutation may be looked for under several kinds of trouble.
    names = dict.fromkeys(_mutation(item) for node in tree.body for item in _listed(node))
    return [Patched(path, name, docs.get(name) or name.replace("_", " ")) for name in names]


def _listed(node: ast.stmt) -> list[ast.expr]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    value = getattr(node, "value", None)
    named = any(isinstance(target, ast.Name) and target.id == "MUTATIONS" for target in targets)
    return value.elts if named and isinstance(value, ast.List) else []


def _mutation(item: ast.expr) -> str:
    first = (
        item.args[0] if isinstance(item, ast.Call) else item.elts[0] if isinstance(item, ast.Tuple) else item
    )
    assert isinstance(first, ast.Name), "a mutation is a function of its file"
    return first.id
