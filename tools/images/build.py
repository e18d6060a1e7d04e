"""Building the images: what a target holds is gathered in a directory of its own, and Docker is given that.

An image says by a label which sources, pins and base it was made of, so that what is up to date is not built
again: `ensure` costs a second then.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.deploy_setup import locked
from tools.images.docker import Docker
from tools.images.stand_ins import JAVA_IMAGE, LABEL, PYTHON_IMAGE, provide
from tools.images.targets import ROOT, TARGETS, Contents, Target, contents, image_name, version
from tools.images.wheels import built, fetched, installable, uv_program

INPUTS_LABEL: Final = "magnetar.inputs"
_DOCKERFILE: Final = ROOT / "docker" / "Dockerfile"
_HEALTH: Final = ROOT / "tools" / "images" / "health.py"
_LICENSE: Final = ROOT / "LICENSE"


@dataclass(frozen=True, slots=True)
class Bases:
    """Base images: names with tags, and for a release with digests."""

    python: str = PYTHON_IMAGE
    java: str = JAVA_IMAGE
    stand_ins: bool = True
    """Whether images of tests may be in their place."""


def ensure(docker: Docker, names: Iterable[str], bases: Bases | None = None) -> dict[str, str]:
    """Build those images that are not there or out of date. Returns names with tags, by target.

    One process at a time. Raises DockerFailed, NoStandIn, NoWheels and NotPinned.
    """
    chosen = bases or Bases()
    wanted = list(names)
    with locked("images"):
        for image in (chosen.python, *([chosen.java] if "spark" in wanted else [])):
            print(f"images: {image}: {provide(docker, image, stand_ins=chosen.stand_ins)}", flush=True)
        architecture = docker.architecture()
        return {name: _ensure(docker, TARGETS[name], chosen, architecture) for name in wanted}


def prune(docker: Docker, *filters: str) -> list[str]:
    """Remove images that were built here of other versions, or that newer ones have taken the name of.

    Those of this version stay, and those of which there is a container. Returns what Docker says of each.
    Raises DockerFailed.
    """
    said = []
    other = f"label!=org.opencontainers.image.version={version()}"
    for which in ((), ("--all", "--filter", other)):
        chosen = [part for each in (f"label={INPUTS_LABEL}", *filters) for part in ("--filter", each)]
        said += docker.run("image", "prune", "--force", *which, *chosen).splitlines()
    return said


def _ensure(docker: Docker, target: Target, bases: Bases, architecture: str) -> str:
    image = image_name(target.name)
    held = contents(target)
    inputs = _digest(docker, target, held, bases, architecture)
    if docker.label(image, INPUTS_LABEL) == inputs:
        return image
    print(f"images: {image}", flush=True)
    with tempfile.TemporaryDirectory(prefix="magnetar-image-") as scratch:
        directory = Path(scratch)
        gather(held, architecture, directory)
        docker.build(
            directory,
            tag=image,
            arguments=(
                *("--target", target.name),
                *("--build-arg", f"PYTHON_IMAGE={bases.python}", "--build-arg", f"JAVA_IMAGE={bases.java}"),
                *("--build-arg", f"VERSION={version()}"),
                *("--label", f"{INPUTS_LABEL}={inputs}"),
                *("--label", f"org.opencontainers.image.title={image.partition(':')[0]}"),
                *("--label", f"org.opencontainers.image.description={target.about}"),
            ),
        )
    return image


def gather(held: Contents, architecture: str, directory: Path) -> None:
    """Put everything that the Dockerfile copies into a directory."""
    shutil.copy(_DOCKERFILE, directory)
    shutil.copy(_HEALTH, directory)
    shutil.copy(_LICENSE, directory)
    wheels = fetched(held.pins, architecture)
    lines = installable(held.pins, wheels)
    (directory / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (directory / "wheels").mkdir()
    for wheel in wheels:
        try:
            os.link(wheel, directory / "wheels" / wheel.name)
        except OSError:  # another file system
            shutil.copy(wheel, directory / "wheels")
    (directory / "ours").mkdir()
    built(held.rooms, directory / "ours")
    uv_program(architecture, directory)


def _digest(docker: Docker, target: Target, held: Contents, bases: Bases, architecture: str) -> str:
    """Digest of everything that determines the content of an image."""
    below = [bases.python, *([bases.java] if target.name == "spark" else [])]
    parts = [
        target.name,
        architecture,
        version(),
        *(f"{base} {(docker.inspect(base) or {}).get('Id')}" for base in below),
        *held.pins.values(),
    ]
    files = [_DOCKERFILE, _HEALTH, _LICENSE, ROOT / "requirements-uv.txt"]
    for room in held.rooms:
        files += [room / "pyproject.toml", room / "README.md"]
        files += sorted(path for path in (room / "magnetar").rglob("*") if _is_source(path))
    parts += [f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def is_stand_in(docker: Docker, image: str) -> bool:
    """Whether an image is one of tests."""
    return docker.label(image, LABEL) is not None
