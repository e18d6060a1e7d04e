"""`make images`: build all images, or those named, and say how large each is."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.images.build import Bases, ensure, is_stand_in, prune
from tools.images.docker import Docker, DockerFailed, DockerUnavailable
from tools.images.stand_ins import JAVA_IMAGE, PYTHON_IMAGE, NoStandIn, provide
from tools.images.targets import TARGETS, NotPinned
from tools.images.wheels import NoWheels


def arguments() -> argparse.Namespace:
    """Parsed arguments."""
    parser = argparse.ArgumentParser(prog="make images", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; or all")
    parser.add_argument("--save", type=Path, metavar="DIR", help="also write each to DIR/magnetar-TARGET.tar")
    parser.add_argument("--python-image", default=PYTHON_IMAGE, metavar="IMAGE", help="the base; %(default)s")
    parser.add_argument("--java-image", default=JAVA_IMAGE, metavar="IMAGE", help="brings Java; %(default)s")
    parser.add_argument(
        "--release", action="store_true", help="refuse stand-ins, and bases that are not named by a digest"
    )
    parser.add_argument(
        "--provide", action="append", default=[], metavar="IMAGE",
        help="also have this image of others, pulled or by a stand-in",
    )  # fmt: skip
    parser.add_argument(
        "--prune", action="store_true",
        help="then remove images of other versions that were built here and have no container",
    )  # fmt: skip
    parser.add_argument("--table", action="store_true", help="say the sizes as the table in docs/images.md")
    found = parser.parse_args()
    for name in found.targets:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}")
    if found.release:
        for image in (found.python_image, found.java_image):
            if "@sha256:" not in image:
                parser.error(f"a release stands on digests: {image}@sha256:...")
    return found


def build(asked: argparse.Namespace) -> None:
    """Do it."""
    started = time.monotonic()
    names = asked.targets or list(TARGETS)
    bases = Bases(asked.python_image, asked.java_image, stand_ins=not asked.release)
    docker = Docker()
    made = ensure(docker, names, bases)
    for image in asked.provide:
        print(f"images: {image}: {provide(docker, image, stand_ins=bases.stand_ins)}", flush=True)
    if asked.prune:
        print("\n".join(f"images: {line}" for line in prune(docker) if line))
    base = docker.size(bases.python)
    rows = [(image, docker.size(image)) for image in made.values()]
    if asked.save:
        asked.save.mkdir(parents=True, exist_ok=True)
        for name, image in made.items():
            docker.save(image, asked.save / f"magnetar-{name}.tar")
    standing = " (a stand-in)" if is_stand_in(docker, bases.python) else ""
    print("\n".join(sizes(rows, bases.python + standing, base, table=asked.table)))
    print(f"images: done in {time.monotonic() - started:.0f} s")


def sizes(rows: list[tuple[str, int]], base: str, base_bytes: int, *, table: bool) -> list[str]:
    """How large images are, and how much of that is theirs; MB are millions of bytes."""
    if table:
        lines = [f"| image | MB | above the base of {_mb(base_bytes)} |", "| --- | --- | --- |"]
        return [*lines, *(f"| `{name}` | {_mb(size)} | {_mb(size - base_bytes)} |" for name, size in rows)]
    width = max(len(name) for name, _ in [*rows, (base, 0)])
    lines = [
        f"{name:<{width}}  {_mb(size):>5} MB, {_mb(size - base_bytes)} above the base" for name, size in rows
    ]
    return [f"{base:<{width}}  {_mb(base_bytes):>5} MB", *lines]


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f}"


def main() -> None:
    try:
        build(arguments())
    except (DockerUnavailable, DockerFailed, NoStandIn, NoWheels, NotPinned) as error:
        sys.exit(f"images: {error}")
    except KeyboardInterrupt:
        sys.exit("images: interrupted; what was built stays")


if __name__ == "__main__":
    main()
