"""Compiled modules in place of their sources: finds those of the package `magnetar-speedups`.

The package holds modules of Magnetar that mypyc compiled from these very sources. All of them are used or
none, since compiled classes know each other's layout. So each source is compared with the one that was
compiled, and after any change the sources run, as they do where the package is not installed or
`MAGNETAR_SPEEDUPS=off` is set. docs/decisions/compiled-modules.md has the figures.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGE: Final = "magnetar_speedups"
MANIFEST: Final = "manifest.json"
"""Compiled modules by name: the file of each, and the SHA-256 of its source (None if it has none)."""

VARIABLE: Final = "MAGNETAR_SPEEDUPS"
"""Environment variable: `off` runs the sources although the package is installed."""

_state: list[str] = ["sources: compiled modules were not asked for"]


class CompiledModules:
    """Finds compiled modules by their full names. A finder of `sys.meta_path`, asked before all others."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None:
            return None
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def activate() -> None:
    """Uses compiled modules from now on, if they fit. Call it before one of them is imported. Idempotent."""
    if any(isinstance(finder, CompiledModules) for finder in sys.meta_path):
        return
    files, _state[0] = _fitting()
    if files:
        sys.meta_path.insert(0, CompiledModules(files))


def description() -> str:
    """Says in one line what runs: compiled modules, or sources and why."""
    return _state[0]


def _fitting() -> tuple[dict[str, Path], str]:
    """Returns the files of compiled modules by name, and what to say of them; none if they do not fit."""
    if os.environ.get(VARIABLE, "").lower() in ("off", "0", "false"):
        return {}, f"sources: {VARIABLE} is off"
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        return {}, "sources: magnetar-speedups is not installed"
    directory = Path(package.submodule_search_locations[0])
    try:
        manifest: dict[str, list[str | None]] = json.loads((directory / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        return {}, f"sources: the manifest of magnetar-speedups cannot be read: {error}"
    files: dict[str, Path] = {}
    roots = _namespace()
    for name, (file, digest) in manifest.items():
        files[name] = directory / str(file)
        if name in sys.modules:
            return {}, f"sources: {name} was imported before the compiled modules"
        if digest is not None and _digest_of_source(name, roots) not in (digest, None):
            return {}, f"sources: magnetar-speedups was compiled from another {name}; make speedups"
        if not files[name].exists():
            return {}, f"sources: magnetar-speedups has no {file}: it is for another Python"
    return files, f"compiled: {sum(each is not None for _, each in manifest.values())} modules"


def _digest_of_source(name: str, roots: Sequence[str]) -> str | None:
    """Returns None for a module that is not installed, as brokers' modules are not beside a bookie."""
    parts = name.split(".")
    for root in roots:
        try:
            return hashlib.sha256(Path(root, *parts[1:]).with_suffix(".py").read_bytes()).hexdigest()
        except OSError:
            continue
    return None


def _namespace() -> Sequence[str]:
    """Returns the directories of the namespace `magnetar`, one for each distribution."""
    found = find_spec("magnetar")
    return () if found is None else list(found.submodule_search_locations or ())
