"""helm/magnetar/values.yaml as it is read by people: each value with the comment above it.

A line `# @schema {...}` in such a comment says what a default cannot: members of a JSON schema, and

  config: SERVICE   settings of the service, as docs/configuration.md has them
  free: true        anything of the default's kind: Kubernetes itself knows what is right there
  quantity: true    an amount as Kubernetes writes it, such as 10Gi
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "magnetar"
VALUES: Final = CHART / "values.yaml"
_KEY: Final = re.compile(r"( *)([A-Za-z]\w*):(?: .*)?")
_HINT: Final = "@schema "


@dataclass(frozen=True, slots=True)
class Value:
    """A leaf: what is given as a whole, or not at all."""

    path: tuple[str, ...]
    default: Any
    about: str
    hints: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A value in the form of `--set`."""
        return ".".join(self.path)


def read_values(text: str) -> list[Value]:
    """All leaves of a values file in block style, in its order."""
    data = yaml.safe_load(text)
    found: list[Value] = []
    comment: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip().removeprefix("#").strip())
            continue
        if (match := _KEY.fullmatch(line)) is not None:
            indent = len(match[1])
            while parents and parents[-1][0] >= indent:
                parents.pop()
            parents.append((indent, match[2]))
            path = tuple(key for _, key in parents)
            if not any(path[: len(leaf.path)] == leaf.path for leaf in found):
                value = _leaf(path, _at(data, path), comment)
                if value is not None:
                    found.append(value)
        comment = []
    return found


def _leaf(path: tuple[str, ...], default: Any, comment: list[str]) -> Value | None:
    hints: dict[str, Any] = {}
    for line in comment:
        if line.startswith(_HINT):
            hints |= yaml.safe_load(line.removeprefix(_HINT))
    if isinstance(default, dict) and default and not hints:
        return None
    about = " ".join(line for line in comment if not line.startswith(_HINT))
    return Value(path, default, about, hints)


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data[key]
    return data
