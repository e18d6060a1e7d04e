"""Real, public text that every machine with this tree has: the files of installed packages, line by line."""

from __future__ import annotations

import itertools
import os
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIXES: Final = frozenset(
    [
        ".c",
        ".css",
        ".h",
        ".hpp",
        ".html",
        ".js",
        ".json",
        ".md",
        ".pxd",
        ".py",
        ".pyi",
        ".pyx",
        ".rst",
        ".sh",
        ".toml",
        ".ts",
        ".txt",
        ".xml",
        ".yaml",
        ".yml",
    ]
) | {""}
FILE_BYTES_MAX: Final = 4 << 20
_LOOKED_AT: Final = 4_096


@dataclass(frozen=True, slots=True)
class Text:
    """A message to be: a line of a file, or a part of it."""

    payload: bytes
    key: str
    """The file, from the root that it was found in."""
    suffix: str
    changed_ms: int
    """When the file was changed last, in ms since 1970 UTC."""
    round: int
    """Number of complete passes over all files before this line."""

    @property
    def properties(self) -> dict[str, str]:
        """Properties published beside the payload and the key."""
        return {"suffix": self.suffix, "round": str(self.round)}


def roots() -> list[Path]:
    """Installed packages, Python's own library, the documents of the system's packages."""
    paths = sysconfig.get_paths()
    named = [paths["purelib"], paths["stdlib"], "/usr/share/doc"]
    return [path for path in map(Path, dict.fromkeys(named)) if path.is_dir()]


def files(directories: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Text files and what they are called, in the same order each time; no link is followed."""
    for root in directories:
        for directory, below, names in os.walk(root):
            below[:] = sorted(name for name in below if name not in ("__pycache__", "site-packages"))
            for name in sorted(names):
                path = Path(directory, name)
                if path.suffix in SUFFIXES and _is_text(path):
                    yield path, f"{root.name}/{path.relative_to(root)}"


def _is_text(path: Path) -> bool:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
            return False
        with path.open("rb") as file:
            return b"\0" not in file.read(_LOOKED_AT)
    except OSError:  # Not readable by this user.
        return False


def texts(piece_bytes: int = 0, directories: Iterable[Path] | None = None) -> Iterator[Text]:
    """Lines, or with `piece_bytes` parts of that size, of all files, again and again without an end.

    Raises:
        FileNotFoundError: there is no text file at all.
    """
    found = list(files(roots() if directories is None else directories))
    if not found:
        raise FileNotFoundError("no text file was found to be published")
    for number in itertools.count():
        for path, key in found:
            content = path.read_bytes()
            changed_ms = path.stat().st_mtime_ns // 1_000_000
            suffix = path.suffix or "none"
            for payload in _parts(content, piece_bytes):
                yield Text(payload, key, suffix, changed_ms, number)


def _parts(content: bytes, piece_bytes: int) -> Iterable[bytes]:
    if not piece_bytes:
        return content.splitlines()
    return (content[start : start + piece_bytes] for start in range(0, len(content), piece_bytes))
