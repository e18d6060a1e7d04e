"""Programs that the comparison needs, built or fetched once into the cache of the benchmarks."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.jars import fetch_jars, jars_directory, version_in

SOURCES: Final = Path(__file__).parent / "peerload"
POM: Final = Path(__file__).with_name("pom.xml")
BUILD_SECONDS_MAX: Final = 1_800
NATS_MODULE: Final = "github.com/nats-io/nats-server/v2"


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the programs; a reason (str) in the place of one that cannot be had."""

    generator: Path | str
    nats: Path | str
    kafka: Path | str
    """Directory of Kafka's jars."""


def ready(say: Callable[[str], None]) -> Programs:
    """Build and fetch the programs that the cache lacks."""
    return Programs(
        _built(f"peerload-{_digest()}", "peerload", ".", say),
        _built(f"nats-server-{nats_version()}", "nats-server", NATS_MODULE, say),
        fetch_jars(f"kafka-{kafka_version()}", POM, f"Apache Kafka {kafka_version()} (43 MB)", say),
    )


def nats_version() -> str:
    """The version of nats-server that is measured."""
    found = re.search(rf"{NATS_MODULE} v(\S+)", (SOURCES / "go.mod").read_text())
    assert found is not None, "go.mod names no nats-server"
    return found[1]


def kafka_version() -> str:
    """The version of Apache Kafka that is measured."""
    return version_in(POM)


def _digest() -> str:
    """Digest of the generator's sources: other sources are another program."""
    files = sorted(path for path in SOURCES.iterdir() if path.name.startswith("go.") or path.suffix == ".go")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:8]


def _built(directory: str, name: str, package: str, say: Callable[[str], None]) -> Path | str:
    """A Go program in the cache, or the reason why there is none."""
    program = jars_directory(directory) / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        return "`go` is not installed"
    say(f"building {name} with Go into {program.parent}, once")
    partial = program.with_name(f"{name}.part")
    program.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            ["go", "build", "-o", str(partial), package],
            cwd=SOURCES,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Go did not finish within {BUILD_SECONDS_MAX} s"
    if done.returncode != 0:
        return f"Go failed: {done.stderr.strip()[-300:]}"
    partial.rename(program)
    return program
