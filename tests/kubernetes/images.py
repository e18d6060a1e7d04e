"""The images that the chart names, as one archive: this tree's own are built, others pulled or replaced."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Final

from tests.kubernetes.record import size, table
from tests.kubernetes.release import Release
from tests.kubernetes.tiers import cannot_run
from tools.images.build import ensure
from tools.images.docker import Docker, DockerFailed, DockerUnavailable
from tools.images.stand_ins import NoStandIn, provide
from tools.images.targets import TARGETS, NotPinned, image_name
from tools.images.wheels import NoWheels

ARCHIVE_VARIABLE: Final = "KUBERNETES_IMAGES"
"""Names an archive that has them already, as of a release that is tried."""
CANNOT = (DockerUnavailable, DockerFailed, NoStandIn, NoWheels, NotPinned)
"""What `save_images` raises; each says why there are no images."""


def images_of(objects: str) -> set[str]:
    """Every image that rendered objects name."""
    return set(re.findall(r"^\s*(?:- )?image: [\"']?([^\"'\s]+)", objects, re.MULTILINE))


def save_images(names: set[str], archive: Path) -> dict[str, str]:
    """Write them to an archive as `docker save` does; says how each was come by. Raises what CANNOT has."""
    if given := os.environ.get(ARCHIVE_VARIABLE):
        shutil.copyfile(given, archive)
        return dict.fromkeys(names, "from an archive that was given")
    targets = {image_name(target): target for target in TARGETS}
    docker = Docker()
    ours = ensure(docker, sorted(targets[name] for name in names & targets.keys()))
    found = dict.fromkeys(ours.values(), "built from this tree")
    for image in sorted(names - found.keys()):
        found[image] = provide(docker, image)
    docker.run("save", "--output", str(archive), *sorted(names))
    return found


def load_images(release: Release) -> None:
    """Bring in what the chart names: this tree's images, built where they are not up to date, and etcd's."""
    archive = release.directory / "images.tar"
    began = time.monotonic()
    try:
        images = save_images(images_of(release.rendered()), archive)
    except CANNOT as error:
        cannot_run(str(error))
    release.record.note("images: built where they were not up to date, and saved", time.monotonic() - began)
    began = time.monotonic()
    release.cluster.load_images(archive)
    release.record.note(f"images: {size(archive)} loaded", time.monotonic() - began)
    archive.unlink()
    release.record.section("Images", table(("image", "how"), sorted(images.items())))
