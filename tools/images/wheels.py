"""Wheels for images: others' fetched by their hashes into a cache, ours built from this tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name, parse_wheel_filename

from tools.bounded import run
from tools.deploy_setup import cache_directory
from tools.images.targets import ROOT, pins_of

UV: Final = Path(sys.executable).parent / "uv"
PYTHON_TAG: Final = "311"
"""Python version of the images, not that of this process."""
GLIBC_MINOR_MAX: Final = 36
"""Debian 12 has glibc 2.36: wheels for newer ones do not run there."""

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SOURCE_ONLY: Final = ("pyspark",)
"""Published without a wheel; built here with the setuptools of .venv, which compiles nothing."""
COMMAND_SECONDS_MAX: Final = 900.0
_LOG_LINES: Final = 15


class NoWheels(Exception):
    """Wheels could not be built; the message says why."""


class NotFetched(NoWheels):
    """Those of others could not even be had: there may be no network."""


def fetched(pins: dict[str, str], architecture: str) -> list[Path]:
    """A wheel of each pinned package, for Linux on this architecture, in Docker's words. Raises
    NotFetched."""
    places = {name: _place(line, architecture) for name, line in pins.items()}
    missing = {name: pins[name] for name, place in places.items() if not list(place.glob("*.whl"))}
    from_source = {name: line for name, line in missing.items() if name in _SOURCE_ONLY}
    for some, command in (
        ({name: line for name, line in missing.items() if name not in from_source}, _download(architecture)),
        (
            from_source,
            ("wheel", "--no-binary", ",".join(_SOURCE_ONLY), "--no-build-isolation", "--wheel-dir"),
        ),
    ):
        if some:
            _fetch(some, command, places)
    return sorted(wheel for place in places.values() for wheel in place.glob("*.whl"))


def installable(pins: dict[str, str], wheels: Iterable[Path]) -> list[str]:
    """The pins as an installation from these wheels wants them.

    A wheel that was built here has a hash of its own; its source's was looked at when it was fetched.
    """
    lines = dict(pins)
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        if name in _SOURCE_ONLY:
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines[name] = f"{name}=={version} --hash=sha256:{digest}"
    return list(lines.values())


def _place(line: str, architecture: str) -> Path:
    """Where the wheel of a pin is kept: another pin, or hash, is another place."""
    digest = hashlib.sha256(f"{architecture} {PYTHON_TAG} {line}".encode()).hexdigest()
    return cache_directory() / "wheels" / digest[:24]


def _download(architecture: str) -> tuple[str, ...]:
    machine = _MACHINES[architecture]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR_MAX, 4, -1)]
    platforms = [*tags, f"manylinux2014_{machine}", f"linux_{machine}"]
    return (
        "download",
        "--only-binary=:all:",
        *("--implementation", "cp", "--python-version", PYTHON_TAG),
        *(f"--abi={abi}" for abi in (f"cp{PYTHON_TAG}", "abi3", "none")),
        *(f"--platform={platform}" for platform in platforms),
        "--dest",
    )


def _fetch(pins: dict[str, str], command: tuple[str, ...], places: dict[str, Path]) -> None:
    print(f"images: wheels of {', '.join(pins)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="magnetar-wheels-") as scratch:
        directory = Path(scratch)
        wanted = directory / "requirements.txt"
        wanted.write_text("\n".join(pins.values()) + "\n", encoding="utf-8")
        verb, *options = command
        why = _why_failed(
            sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", "--no-deps",
            "--require-hashes", "--requirement", str(wanted), *options, scratch,
        )  # fmt: skip
        if why is not None:
            raise NotFetched(why)
        for wheel in directory.glob("*.whl"):
            place = places[canonicalize_name(parse_wheel_filename(wheel.name)[0])]
            place.mkdir(parents=True, exist_ok=True)
            partial = place / f"{wheel.name}.{os.getpid()}.partial"
            shutil.copyfile(wheel, partial)
            partial.rename(place / wheel.name)


def built(rooms: Iterable[Path], directory: Path) -> list[Path]:
    """Wheels of distributions of this workspace, built into `directory`. Raises NoWheels."""
    for room in rooms:
        why = _why_failed(
            str(UV),
            "build",
            "--quiet",
            "--no-config",
            "--offline",
            "--wheel",
            "--out-dir",
            str(directory),
            str(room),
        )
        if why is not None:
            raise NoWheels(why)
    for left in directory.glob(".gitignore"):
        left.unlink()
    return sorted(directory.glob("*.whl"))


def uv_program(architecture: str, directory: Path) -> Path:
    """uv itself as it runs in an image of this architecture, pinned as ours is. Raises NotFetched."""
    (wheel,) = fetched(pins_of((ROOT / "requirements-uv.txt").read_text(encoding="utf-8")), architecture)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/scripts/uv"))
        (directory / "uv").write_bytes(archive.read(name))
    (directory / "uv").chmod(0o755)
    return directory / "uv"


def _why_failed(*command: str) -> str | None:
    done = run(command, COMMAND_SECONDS_MAX, directory=ROOT)
    if done.why_failed is None:
        return None
    called = " ".join(Path(each).name for each in command[:4])
    said = (done.printed + done.errors).strip().splitlines()[-_LOG_LINES:]
    return "\n".join([f"{called}: {done.why_failed}", *(line for line in said if line != done.why_failed)])
