"""The images there are, what is in each, and which pinned packages that means."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.setup import members

ROOT: Final = Path(__file__).resolve().parents[2]
REPOSITORY: Final = "magnetar"
_PINS: Final = ("requirements-spark.txt", "requirements.txt")
_ENVIRONMENT: Final = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.2",
    "python_version": "3.11",
    "sys_platform": "linux",
}
"""Environment for markers: the images', not that of this process."""

_COLD: Final = "magnetar-broker[cold]"


@dataclass(frozen=True, slots=True)
class Target:
    """An image: a target of docker/Dockerfile."""

    name: str
    holds: tuple[str, ...]
    """Requirements, all of distributions of this workspace."""
    about: str


TARGETS: Final = {
    target.name: target
    for target in (
        Target("bookie", ("magnetar-cli[bookie]",), "magnetar bookie"),
        Target("broker", ("magnetar-cli[broker]", _COLD), "magnetar broker; reads offloaded ledgers"),
        Target("discovery", ("magnetar-cli[discovery]",), "magnetar discovery"),
        Target("console", ("magnetar-cli[console]",), "magnetar console"),
        Target("tools", ("magnetar-cli[all]",), "every command of magnetar, standalone too"),
        Target("spark", ("magnetar-cli[all]", _COLD, "magnetar-spark"), "the tools, PySpark and Java"),
    )
}


class NotPinned(Exception):
    """Something is needed that no requirements file pins, or of which nothing is known here."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Complete content of a target."""

    rooms: tuple[Path, ...]
    """Directories of distributions of this workspace."""
    pins: dict[str, str]
    """Lines of a requirements file, with hashes, by package."""


def version() -> str:
    """Version of this workspace: the tag of its images."""
    return str(_project(ROOT)["version"])


def image_name(target: str) -> str:
    """Name and tag of an image."""
    return f"{REPOSITORY}/{target}:{version()}"


def contents(target: Target) -> Contents:
    """Follow what it holds through all requirements, ours from pyproject.toml, others from what is installed.

    Raises NotPinned.
    """
    rooms = {canonicalize_name(str(_project(room)["name"])): room for room in members()}
    pinned = all_pins()
    found: dict[str, str] = {}
    ours: set[Path] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(line) for line in target.holds]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name in rooms:
                ours.add(rooms[name])
                waiting += _of_room(rooms[name], extra)
            else:
                if name not in pinned:
                    raise NotPinned(f"{name}, which {target.name} needs, is in none of {', '.join(_PINS)}")
                found[name] = pinned[name]
                waiting += _of_package(name, extra)
    return Contents(tuple(sorted(ours)), dict(sorted(found.items())))


def _of_room(room: Path, extra: str) -> list[Requirement]:
    project = _project(room)
    lines = project.get("optional-dependencies", {})[extra] if extra else project.get("dependencies", [])
    return _that_hold((Requirement(line) for line in lines), "")


def _of_package(name: str, extra: str) -> list[Requirement]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        raise NotPinned(
            f"{name} is not installed here, so what it needs is unknown: make setup-spark"
        ) from None
    whole = (Requirement(line) for line in lines)
    # Without an extra everything that holds; with one what holds because of it.
    always = {str(each) for each in _that_hold(whole, "")}
    if not extra:
        return [Requirement(each) for each in sorted(always)]
    return [each for each in _that_hold(map(Requirement, lines), extra) if str(each) not in always]


def _that_hold(requirements: Iterable[Requirement], extra: str) -> list[Requirement]:
    environment = {**_ENVIRONMENT, "extra": extra}
    return [each for each in requirements if each.marker is None or each.marker.evaluate(environment)]


def all_pins() -> dict[str, str]:
    """Every pinned package: its line, with the continuation lines that hold its hashes."""
    found: dict[str, str] = {}
    for file in _PINS:
        path = ROOT / file
        if path.exists():
            found |= pins_of(path.read_text(encoding="utf-8"))
    return found


def pins_of(text: str) -> dict[str, str]:
    """The packages of a requirements file, each with its whole line."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [
        line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    return {canonicalize_name(line.partition("==")[0]): line for line in lines}


@cache
def _project(directory: Path) -> dict[str, Any]:
    found = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found
