"""Stand-ins for images that cannot be pulled: made of Debian's packages, with the same name and tag.

So the same Dockerfile builds, and the same docker-compose.yml and chart run, on a machine that reaches no
registry. They are for tests: each has the label `magnetar.stand-in`, which says what it is, and nothing with
one below it is released (`make images ARGS=--release` refuses them).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.bounded import run
from tools.deploy_setup import program
from tools.images.docker import Docker, DockerFailed

LABEL: Final = "magnetar.stand-in"
MIRROR_VARIABLE: Final = "DEBIAN_MIRROR"
MIRROR: Final = "http://deb.debian.org/debian"
PYTHON_IMAGE: Final = "python:3.11.14-slim-bookworm"
JAVA_IMAGE: Final = "eclipse-temurin:17.0.17_10-jre-jammy"

COMMAND_SECONDS_MAX: Final = 900.0
"""For a mirror that does not answer; debootstrap on two busy cores takes a tenth of it."""
_SUITE: Final = "bookworm"
_NOT_NEEDED: Final = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
)
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


class NoStandIn(Exception):
    """An image can neither be pulled nor be replaced here; the message says why."""


def provide(docker: Docker, image: str, *, stand_ins: bool = True) -> str:
    """See that an image is there: as it is, pulled, or replaced. Returns which of these, for people.

    Without `stand_ins` one that is there counts for nothing. Raises NoStandIn.
    """
    there = docker.inspect(image) is not None
    what = docker.label(image, LABEL)
    if there and (what is None or stand_ins):
        return "there" if what is None else f"a stand-in: {what}"
    try:
        docker.pull(image)
    except DockerFailed as error:
        why = f"{image} cannot be pulled ({str(error).splitlines()[-1]})"
    else:
        return "pulled"
    if not stand_ins:
        raise NoStandIn(why)
    for pattern, make in _MAKERS.items():
        if re.fullmatch(pattern, image):
            print(f"images: {why}; making a stand-in", flush=True)
            try:
                return f"a stand-in: {make(docker, image)}"
            except (DockerFailed, OSError) as error:
                raise NoStandIn(f"no stand-in for {image}: {error}") from error
    raise NoStandIn(f"{why}, and Debian has nothing that could stand in for it")


def _python(docker: Docker, image: str) -> str:
    """Debian with its Python 3.11, by debootstrap."""
    debootstrap = program("debootstrap")
    if debootstrap is None or os.geteuid() != 0:
        raise NoStandIn(f"{image} cannot be pulled, and a stand-in takes debootstrap and root")
    with tempfile.TemporaryDirectory(prefix="magnetar-base-") as scratch:
        root = Path(scratch) / "root"
        mirror = os.environ.get(MIRROR_VARIABLE, MIRROR)
        _run(
            str(debootstrap),
            "--variant=minbase",
            "--include=python3,ca-certificates",
            _SUITE,
            str(root),
            mirror,
        )
        version = _version_in(root, "python3.11")
        for name in _NOT_NEEDED:
            shutil.rmtree(root / name, ignore_errors=True)
            (root / name).mkdir()
        archive = Path(scratch) / "root.tar"
        _run(
            "tar",
            "--create",
            "--one-file-system",
            "--numeric-owner",
            "--file",
            str(archive),
            "--directory",
            str(root),
            ".",
        )
        what = f"Debian's python3.11 {version}, by debootstrap"
        changes = (f"ENV PATH={_PATH}", 'CMD ["python3"]', f'LABEL {LABEL}="{what}"')
        docker.run("import", *(part for each in changes for part in ("--change", each)), str(archive), image)
    return what


def _java(docker: Docker, image: str) -> str:
    """OpenJDK's headless runtime where Temurin's lies."""
    with tempfile.TemporaryDirectory(prefix="magnetar-java-") as scratch:
        directory = Path(scratch)
        root, version = _unpacked("openjdk-17-jre-headless", directory)
        (home,) = (
            each for each in (root / "usr/lib/jvm").iterdir() if each.is_dir() and not each.is_symlink()
        )
        _copy_following(root, home, directory / "openjdk")
        return _from_debian(
            docker, image, directory, f"Debian's openjdk-17-jre-headless {version}",
            "COPY openjdk /opt/java/openjdk",
            f"ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/java/openjdk/bin:{_PATH}",
        )  # fmt: skip


def _etcd(docker: Docker, image: str) -> str:
    """Debian's etcd where the official image has it."""
    with tempfile.TemporaryDirectory(prefix="magnetar-etcd-") as scratch:
        directory = Path(scratch)
        server, version = _unpacked("etcd-server", directory)
        client, _ = _unpacked("etcd-client", directory)
        shutil.copy(server / "usr/bin/etcd", directory)
        shutil.copy(client / "usr/bin/etcdctl", directory)
        return _from_debian(
            docker, image, directory, f"Debian's etcd-server {version}",
            "COPY etcd etcdctl /usr/local/bin/",
            "ENV ETCDCTL_API=3", "EXPOSE 2379 2380", 'CMD ["/usr/local/bin/etcd"]',
        )  # fmt: skip


def _prometheus(docker: Docker, image: str) -> str:
    """Debian's Prometheus, started as the official image is."""
    with tempfile.TemporaryDirectory(prefix="magnetar-prometheus-") as scratch:
        directory = Path(scratch)
        root, version = _unpacked("prometheus", directory)
        for name in ("prometheus", "promtool"):
            shutil.copy(root / "usr/bin" / name, directory)
        return _from_debian(
            docker, image, directory, f"Debian's prometheus {version}",
            "COPY prometheus promtool /bin/",
            "RUN mkdir -p /prometheus /etc/prometheus && chown nobody:nogroup /prometheus",
            "USER nobody", "WORKDIR /prometheus", "VOLUME /prometheus", "EXPOSE 9090",
            'ENTRYPOINT ["/bin/prometheus"]',
            'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
        )  # fmt: skip


_MAKERS: Final[dict[str, Callable[[Docker, str], str]]] = {
    r"(docker\.io/)?(library/)?python:3\.11[.\w]*-slim-bookworm": _python,
    r"(docker\.io/)?(library/)?eclipse-temurin:17[.\w]*-jre[-\w]*": _java,
    r"(quay\.io/coreos|gcr\.io/etcd-development|registry\.k8s\.io)/etcd:v?3\.[-.\w]+": _etcd,
    r"(docker\.io/|quay\.io/)?(prom|prometheus)/prometheus:v[23][.\w]*": _prometheus,
}
"""By what the whole name looks like. Debian 12 has Python 3.11, Java 17, etcd 3.4 and Prometheus 2.42."""


def _from_debian(docker: Docker, image: str, directory: Path, what: str, *lines: str) -> str:
    """Build an image of these lines on the base of all of ours, which is Debian too. Returns `what`."""
    provide(docker, PYTHON_IMAGE)
    text = "\n".join([f"FROM {PYTHON_IMAGE}", f'LABEL {LABEL}="{what}"', *lines, ""])
    (directory / "Dockerfile").write_text(text)
    docker.build(directory, tag=image)
    return what


def _unpacked(package: str, directory: Path) -> tuple[Path, str]:
    """The files of one of Debian's packages, below `directory`, and its version. Nothing is installed."""
    if program("apt-get") is None or program("dpkg-deb") is None:
        raise NoStandIn(f"{package} of Debian is needed, and there is no apt-get here")
    fetched, root = directory / f"{package}.fetched", directory / f"{package}.root"
    fetched.mkdir()
    try:
        _run("apt-get", "download", "--quiet=2", package, directory=fetched)
    except NoStandIn:  # the archive has a newer one by now
        _run("apt-get", "update", "--quiet=2")
        _run("apt-get", "download", "--quiet=2", package, directory=fetched)
    (file,) = fetched.glob("*.deb")
    _run("dpkg-deb", "--extract", str(file), str(root))
    return root, _run("dpkg-deb", "--field", str(file), "Version").strip()


def _version_in(root: Path, package: str) -> str:
    """Files of a package installed below `root`."""
    status = (root / "var/lib/dpkg/status").read_text()
    found = re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*?Version: (\S+)$", status, re.MULTILINE)
    return found[1] if found else "of an unknown version"


def _copy_following(root: Path, source: Path, target: Path) -> None:
    """Copy a directory, with what its links name below `root` in their place; links that lead nowhere go."""
    target.mkdir(parents=True)
    for each in sorted(source.iterdir()):
        there = each
        while there.is_symlink():
            named = os.readlink(there)
            there = root / named.lstrip("/") if named.startswith("/") else there.parent / named
        if there.is_dir():
            _copy_following(root, there, target / each.name)
        elif there.exists():
            shutil.copy(there, target / each.name)


def _run(*command: str, directory: Path | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = run(command, COMMAND_SECONDS_MAX, environment=environment, directory=directory)
    if done.why_failed is not None:
        raise NoStandIn(f"{Path(command[0]).name}: {done.why_failed}")
    return done.printed
