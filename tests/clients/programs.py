"""Programs of the client matrix, one for each client library, and how each is built.

Toolchains fetch what the libraries consist of, pinned by the files beside the sources; a program is built
into the cache (tools/deploy_setup.py says where) under a digest of its sources, so that the next build is a
look.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.clients.node.build import CannotBuild as NodeClientFailed
from tests.clients.node.build import build as build_node_client
from tests.clients.node.build import fetch as fetch_node_client
from tests.integration.harness import ROOT
from tools.bounded import run
from tools.deploy_setup import cache_directory, locked
from tools.setup import UV, uv_environment

SOURCES: Final = Path(__file__).parent
FETCH_SECONDS_MAX: Final = 600.0
BUILD_SECONDS_MAX: Final = 1_800.0
"""The one in Rust, on two cores that do much else: a third of it alone."""
_DIGEST_LENGTH: Final = 12


class CannotBuild(Exception):
    """A program cannot be built; the message says why."""


class CannotFetch(CannotBuild):
    """A toolchain is missing, or it cannot download what a program consists of."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that can be started."""

    name: str
    command: list[str]
    directory: Path = ROOT
    """Where it runs."""
    has_transactions: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """A program as it stands in the tree."""

    name: str
    """The language and the library's version, as tables show it."""
    library: str
    folder: Path
    make: Callable[[Path, Path], list[str]]
    """Builds from the sources in the first directory into the second; returns the command.

    Raises CannotBuild.
    """
    variant: str = ""
    """What distinguishes programs that are built from the same sources."""
    has_transactions: bool = True
    """Whether the library has transactions; other programs are not asked for their scenarios."""

    @property
    def key(self) -> str:
        """The name of its directory in the cache."""
        digest = hashlib.sha256(self.variant.encode())
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(self.folder.parent)}\n".encode() + path.read_bytes())
        plain = "".join(each if each.isalnum() else "-" for each in self.name.lower())
        return f"{plain}-{digest.hexdigest()[:_DIGEST_LENGTH]}"

    def build(self) -> Program:
        """The program, built now where it was not. Raises CannotBuild."""
        place = cache_directory() / "clients"
        target = place / self.key
        with locked(f"client-{self.folder.name}"):
            told = target / "command"
            if not told.exists():
                for outdated in place.glob(f"{self.key[:-_DIGEST_LENGTH]}*"):
                    shutil.rmtree(outdated)
                target.mkdir(parents=True)
                command = self.make(self.folder, target)
                told.write_text("\0".join(command))
        return Program(self.name, told.read_text().split("\0"), has_transactions=self.has_transactions)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotFetch(f"there is no {name} on the PATH")
    return found


def _call(
    command: list[str], seconds_max: float, directory: Path, environment: Mapping[str, str] | None = None
) -> None:
    ended = run(command, seconds_max, directory=directory, environment={**os.environ, **(environment or {})})
    if ended.why_failed is not None:
        said = (ended.errors.strip() or ended.printed.strip())[-2_000:]
        failure = CannotFetch if seconds_max == FETCH_SECONDS_MAX else CannotBuild
        raise failure(f"{ended.why_failed}\n{said}")


_SMALL_JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx768m")


def java_program(version: str, main: str = "ClientProgram") -> Callable[[Path, Path], list[str]]:
    def make(source: Path, target: Path) -> list[str]:
        maven, java, compiler = _tool("mvn"), _tool("java"), _tool("javac")
        told = target / "class-path"
        resolve = [maven, "-q", "-B", "-f", str(source / "pom.xml"), "dependency:build-classpath"]
        resolve += [f"-Dmdep.outputFile={told}", f"-Dpulsar.version={version}"]
        try:
            _call([*resolve, "--offline"], FETCH_SECONDS_MAX, target)
        except CannotBuild:
            _call(resolve, FETCH_SECONDS_MAX, target)
        class_path = told.read_text().strip()
        classes = target / "classes"
        files = sorted(map(str, (source / "src").glob("*.java")))
        _call([compiler, "-nowarn", "-cp", class_path, "-d", str(classes), *files], BUILD_SECONDS_MAX, target)
        return [java, *_SMALL_JAVA, "-cp", f"{classes}:{class_path}", main]

    return make


def _go(package: str = ".") -> Callable[[Path, Path], list[str]]:
    def make(source: Path, target: Path) -> list[str]:
        go = _tool("go")
        environment = {"GOFLAGS": "-trimpath", "CGO_ENABLED": "0"}
        program = target / "client"
        _call([go, "mod", "download"], FETCH_SECONDS_MAX, source, environment)
        _call([go, "build", "-o", str(program), package], BUILD_SECONDS_MAX, source, environment)
        return [str(program)]

    return make


def _rust(binary: str = "magnetar-client-rust") -> Callable[[Path, Path], list[str]]:
    def make(source: Path, target: Path) -> list[str]:
        cargo = _tool("cargo")
        built = cache_directory() / "clients" / "rust-target"  # of all versions: dependencies are built once
        environment = {
            "CARGO_TARGET_DIR": str(built),
            "PROTOC": str(source / "protoc"),
            "PYTHON": sys.executable,
        }
        manifest = ["--locked", "--manifest-path", str(source / "Cargo.toml")]
        _call([cargo, "fetch", *manifest], FETCH_SECONDS_MAX, target, environment)
        _call([cargo, "build", *manifest, "--bin", binary], BUILD_SECONDS_MAX, target, environment)
        program = target / "client"
        shutil.copy(built / "debug" / binary, program)
        return [str(program)]

    return make


def _python(requirements: str, module: str = "tests.clients.python") -> Callable[[Path, Path], list[str]]:
    def make(source: Path, target: Path) -> list[str]:
        environment = target / "venv"
        create = [str(UV), "venv", "-q", "--python", sys.executable, str(environment)]
        _call(create, BUILD_SECONDS_MAX, target)
        python = environment / "bin" / "python"
        install = [str(UV), "pip", "install", "--quiet", "--no-config", "--no-deps", "--only-binary=:all:"]
        install += ["--require-hashes", "--python", str(python), "-r", str(source / requirements)]
        _call(install, FETCH_SECONDS_MAX, target, uv_environment())
        return [str(python), "-m", module]

    return make


def _own(module: str) -> Callable[[Path, Path], list[str]]:
    """The project's own client, as this interpreter's environment has it: installed from the workspace."""

    def make(source: Path, target: Path) -> list[str]:
        python = Path(sys.executable)
        if python.is_relative_to(ROOT):  # run from the root of any checkout: the cache is shared
            python = python.relative_to(ROOT)
        return [str(python), "-m", module]

    return make


def _node(script: str = "main.js") -> Callable[[Path, Path], list[str]]:
    def make(source: Path, target: Path) -> list[str]:
        _tool("npm")
        modules = _node_library(source) / "node_modules"
        program = (source / script).relative_to(
            ROOT
        )  # run from the root of any checkout: the cache is shared
        return ["env", f"NODE_PATH={modules}", _tool("node"), str(program)]

    return make


def _node_library(source: Path) -> Path:
    """The library that all programs of Node share, built where it was not. Raises CannotBuild."""
    names = ("build.py", "package.json", "package-lock.json", "requirements.txt")
    inputs = [*(source / name for name in names), *sorted((source / "native").iterdir())]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()[:_DIGEST_LENGTH]
    place = cache_directory() / "clients"
    target = place / f"node-library-{digest}"
    with locked("client-node-library"):
        if not (target / "built").exists():
            for outdated in place.glob("node-library-*"):
                shutil.rmtree(outdated)
            try:
                fetch_node_client(target)
                build_node_client(target)
            except NodeClientFailed as error:
                raise CannotBuild(str(error)) from error
            (target / "built").touch()
    return target


PROGRAMS: Final = (
    Source("Java 4.0.8", "org.apache.pulsar:pulsar-client", SOURCES / "java", java_program("4.0.8"), "4.0.8"),
    Source(
        "Java 2.11.4", "org.apache.pulsar:pulsar-client", SOURCES / "java", java_program("2.11.4"), "2.11.4"
    ),
    Source("Go 0.19.0", "github.com/apache/pulsar-client-go", SOURCES / "go", _go()),
    Source("Rust 6.9.1", "pulsar of crates.io", SOURCES / "rust", _rust(), has_transactions=False),
    Source("Node 1.15.0", "pulsar-client of npm", SOURCES / "node", _node(), has_transactions=False),
    Source(
        "Python 3.13.0",
        "pulsar-client of PyPI",
        SOURCES / "python",
        _python("requirements.txt"),
        "new",
        False,
    ),
    Source(
        "Python 3.1.0",
        "pulsar-client of PyPI",
        SOURCES / "python",
        _python("requirements-3.1.0.txt"),
        "old",
        False,
    ),
    Source(
        "Python asyncio",
        "magnetar-client of this project",
        SOURCES / "asyncio_client",
        _own("tests.clients.asyncio_client"),
    ),
)
"""All of them, as tables list them."""

SECURITY_PROGRAMS: Final = (
    Source(
        "Secured Java 4.0.8",
        "org.apache.pulsar:pulsar-client",
        SOURCES / "java",
        java_program("4.0.8", "SecurityProgram"),
        "secured 4.0.8",
    ),
    Source(
        "Secured Go 0.19.0",
        "github.com/apache/pulsar-client-go",
        SOURCES / "go",
        _go("./security"),
        "secured",
    ),
    Source(
        "Secured Python 3.13.0",
        "pulsar-client of PyPI",
        SOURCES / "python",
        _python("requirements.txt", "tests.clients.python.security"),
        "secured new",
    ),
    Source(
        "Secured Python asyncio",
        "magnetar-client of this project",
        SOURCES / "asyncio_client",
        _own("tests.clients.asyncio_client.security"),
        "secured",
    ),
    Source("Secured Rust 6.9.1", "pulsar of crates.io", SOURCES / "rust", _rust("security"), "secured"),
    Source("Secured Node 1.15.0", "pulsar-client of npm", SOURCES / "node", _node("security.js"), "secured"),
)
"""Programs of the scenarios with credentials (`security_catalogue.py`)."""

_ADMIN: Final = ROOT / "tests" / "integration" / "admin_clients"

ADMIN_PROGRAMS: Final = {
    "java": Source(
        "Java admin client",
        "org.apache.pulsar:pulsar-client-admin",
        _ADMIN / "java",
        java_program("", "AdminClient"),
    ),
    "go": Source("Go admin client", "github.com/apache/pulsar-client-go", _ADMIN / "go", _go()),
}
"""Apache Pulsar's own admin clients, by language."""
