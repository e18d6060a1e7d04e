"""Third-party scripts and styles of the console: `python -m tools.console_assets` fetches them.

They are kept in the package, so that the console works without a network and users need no build chain; axe,
which only tests use, is kept beside those tests. A file is taken over only if its digest is the one that is
pinned here. npm, which reads the environment's configuration, fetches the packages; `--check` compares what
is there, and needs neither npm nor a network.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
STATIC: Final = ROOT / "services/console/magnetar/console/static"
AXE: Final = ROOT / "tests/integration/axe"
FETCH_SECONDS_MAX: Final = 120.0


class Asset(NamedTuple):
    """A file of an npm package, pinned."""

    package: str
    version: str
    member: str
    """The path in the package."""
    name: str
    """The name in the console's static files."""
    sha256: str


ASSETS: Final = (
    Asset(
        "htmx.org",
        "2.0.11",
        "dist/htmx.min.js",
        "htmx.min.js",
        "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    ),
    Asset(
        "htmx.org",
        "2.0.11",
        "LICENSE",
        "htmx.LICENSE",
        "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    ),
    Asset(
        "uplot",
        "1.6.32",
        "dist/uPlot.iife.min.js",
        "uplot.min.js",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    Asset(
        "uplot",
        "1.6.32",
        "dist/uPlot.min.css",
        "uplot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
    Asset(
        "uplot",
        "1.6.32",
        "LICENSE",
        "uplot.LICENSE",
        "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    ),
)

TEST_ASSETS: Final = (
    Asset(
        "axe-core",
        "4.14.1",
        "axe.min.js",
        "axe.min.js",
        "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
    ),
    Asset(
        "axe-core",
        "4.14.1",
        "LICENSE",
        "axe.LICENSE",
        "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
    ),
)
"""Finds what people with impairments cannot use; not part of the package."""


def problems(directory: Path = STATIC, assets: Sequence[Asset] = ASSETS) -> list[str]:
    """Return each file that is missing, or is another one than was pinned."""
    found = []
    for asset in assets:
        path = directory / asset.name
        if not path.is_file():
            found.append(f"{asset.name}: file not found; run python -m tools.console_assets")
        elif (digest := _digest(path.read_bytes())) != asset.sha256:
            found.append(f"{asset.name}: its SHA-256 is {digest}, not {asset.sha256} as pinned")
    return found


def fetch(directory: Path = STATIC, assets: Sequence[Asset] = ASSETS) -> list[str]:
    """Fetch all packages and write their files; returns the problems of files that were left alone."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for package in sorted({(asset.package, asset.version) for asset in assets}):
            name, version = package
            archive = _packed(f"{name}@{version}", Path(scratch))
            for asset in assets:
                if (asset.package, asset.version) == package:
                    content = _member(archive, f"package/{asset.member}")
                    if _digest(content) == asset.sha256:
                        (directory / asset.name).write_bytes(content)
                    else:
                        found.append(
                            f"{asset.name}: {name} {version} has {asset.member} with the SHA-256 "
                            f"{_digest(content)}, not {asset.sha256} as pinned"
                        )
    return found


def _packed(requirement: str, scratch: Path) -> Path:
    """Return the archive of a package; npm checks it against its registry's digest."""
    done = subprocess.run(
        ["npm", "pack", "--silent", requirement],
        cwd=scratch,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=FETCH_SECONDS_MAX,
    )
    return scratch / done.stdout.split()[-1]


def _member(archive: Path, member: str) -> bytes:
    with tarfile.open(archive) as opened:
        content = opened.extractfile(member)
        assert content is not None, f"{member} of {archive.name} is not a file"
        return content.read()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    work = problems if sys.argv[1:] == ["--check"] else fetch
    found = work() + work(AXE, TEST_ASSETS)
    for each in found:
        print(f"console assets: {each}", file=sys.stderr)
    if found:
        sys.exit(1)


if __name__ == "__main__":
    main()
