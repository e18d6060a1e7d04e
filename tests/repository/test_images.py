"""What goes into images, and what is done where Docker, a base or a package is missing; without a daemon."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name as normal

from tools.images import stand_ins, targets
from tools.images.docker import DockerFailed
from tools.images.stand_ins import JAVA_IMAGE, LABEL, PYTHON_IMAGE, NoStandIn, provide
from tools.images.targets import ROOT, TARGETS, Target, contents

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
WEB = {"aiohttp", "yarl"}
TOPICS = {"cramjam", "pyroaring"}
"""Packages of managed ledgers and compacted views."""


def test_each_image_holds_what_it_runs_and_no_more() -> None:
    held = {name: contents(target) for name, target in TARGETS.items()}
    rooms = {name: {room.name for room in each.rooms} for name, each in held.items()}
    assert rooms["bookie"] == {"bookie", "cli", "common", "ledger", "standalone"}
    assert rooms["broker"] == {"broker", "cli", "common", "ledger", "standalone"}
    assert rooms["discovery"] == {"cli", "common", "discovery", "standalone"}
    assert rooms["console"] == {"cli", "client", "common", "console", "standalone"}
    assert rooms["tools"] == rooms["bookie"] | rooms["broker"] | rooms["discovery"] | rooms["console"]
    assert rooms["spark"] == rooms["tools"] | {"spark"}
    assert held["bookie"].pins.keys() & (WEB | TOPICS | {"rich", "pyarrow"}) == set()
    assert held["broker"].pins.keys() >= WEB | TOPICS | {"pyarrow", "s3fs"}
    assert held["tools"].pins.keys() >= TOPICS | {"jinja2"}
    assert "jinja2" not in held["broker"].pins
    assert held["console"].pins.keys() & (TOPICS | {"rich", "pyarrow", "bcrypt"}) == set()
    assert held["spark"].pins.keys() >= {"pyspark", "fastavro", "pyarrow", "rich"}
    for each in held.values():
        assert each.pins.keys() >= {"grpcio", "uvloop", "click", "structlog"}
        assert all("--hash=sha256:" in line for line in each.pins.values())


def test_a_bookie_imports_nothing_that_its_image_lacks() -> None:
    lacking = contents(TARGETS["tools"]).pins.keys() - contents(TARGETS["bookie"]).pins.keys()
    assert lacking >= WEB | TOPICS
    names = [name for name, owners in packages_distributions().items() if {*map(normal, owners)} <= lacking]
    rooms = [ROOT / "services/bookie", ROOT / "services/standalone"]
    paths = [path.relative_to(room) for room in rooms for path in room.glob("magnetar/**/*.py")]
    modules = [".".join(path.with_suffix("").parts) for path in paths]
    wanted = [each for each in modules if "bookie" in each and not each.endswith("__init__")]
    program = (
        "import sys\nfrom importlib import import_module\n"
        f"sys.modules.update(dict.fromkeys({sorted(names)!r}))\n"
        f"for name in {sorted(wanted)!r}: import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_unpinned_packages_are_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "all_pins", dict)
    with pytest.raises(targets.NotPinned, match="which tools needs, is in none of"):
        contents(Target("tools", ("magnetar-cli[all]",), ""))


def test_the_dockerfile_has_each_target_and_the_bases_that_have_stand_ins() -> None:
    assert re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", DOCKERFILE, re.MULTILINE) == [
        ("PYTHON_IMAGE", PYTHON_IMAGE),
        ("JAVA_IMAGE", JAVA_IMAGE),
    ]
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE))
    assert stages == {*TARGETS, "installed", "service", "java"}
    assert all(any(re.fullmatch(p, image) for p in stand_ins._MAKERS) for image in (PYTHON_IMAGE, JAVA_IMAGE))
    assert ":latest" not in DOCKERFILE


@pytest.fixture
def page() -> Iterator[str]:
    """A server whose /readyz says yes, and whose /no says why not."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.path == "/readyz"
            self.send_response(200 if good else 503)
            self.end_headers()
            self.wfile.write(b"ok\n" if good else b"not ready: it drains\n")

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def check(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "tools/images/health.py")],
        env={"HEALTH_URL": url}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_health_check_is_what_the_page_says(page: str) -> None:
    assert check(f"{page}/readyz").returncode == 0
    refused = check(f"{page}/no")
    assert refused.returncode == 1
    assert "503" in refused.stderr
    assert "it drains" in refused.stderr
    nobody = check("http://127.0.0.1:1/readyz")
    assert nobody.returncode == 1
    assert "refused" in nobody.stderr


class NoRegistry:
    """Docker on a machine that reaches none; knows the images that it is given, with their labels."""

    def __init__(self, **known: str) -> None:
        self.known = known
        self.pulled: list[str] = []

    def inspect(self, image: str) -> object | None:
        return image if image in self.known else None

    def label(self, image: str, label: str) -> str | None:
        return self.known.get(image) or None

    def pull(self, image: str) -> None:
        self.pulled.append(image)
        raise DockerFailed("docker pull --quiet:\ndial tcp: no such host")


def test_a_release_never_stands_on_a_stand_in() -> None:
    docker = NoRegistry(**{PYTHON_IMAGE: "Debian's python"})
    assert provide(docker, PYTHON_IMAGE) == "a stand-in: Debian's python"  # type: ignore[arg-type]
    assert docker.pulled == []
    with pytest.raises(NoStandIn, match="cannot be pulled"):
        provide(docker, PYTHON_IMAGE, stand_ins=False)  # type: ignore[arg-type]
    assert docker.pulled == [PYTHON_IMAGE]
    refused = subprocess.run(
        [sys.executable, "-m", "tools.images", "--release"], cwd=ROOT, capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "a release stands on digests" in refused.stderr


def test_an_image_without_a_stand_in_is_said_to_have_none() -> None:
    with pytest.raises(
        NoStandIn, match=r"grafana:12\.1\.1 cannot be pulled \(dial tcp: no such host\), and Debian has"
    ):
        provide(NoRegistry(), "grafana/grafana:12.1.1")  # type: ignore[arg-type]
    assert LABEL not in DOCKERFILE
