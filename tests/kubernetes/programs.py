"""The programs of a Kubernetes node, built from Go modules and kept for the next run.

node/ is a Go module of our own that requires Kubernetes, etcd and CoreDNS: what is downloaded is modules, no
binaries. A first build takes minutes, later ones nothing: what was built lies in the user's cache, under a
name that changes with the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.kubernetes.image_archive import ARCHITECTURES, write_image
from tools.deploy_setup import cache_directory, locked, program

SOURCES: Final = Path(__file__).parent / "node"
PROGRAM_NAMES: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
"""Links to one binary, which looks at the name that it is called by."""
PAUSE_IMAGE: Final = "magnetar.test/pause:1"
OPERATOR_MODULE: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Has the definitions of ServiceMonitor, PodMonitor and PrometheusRule beside its code."""
OPERATOR_SUM: Final = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
OPERATOR_KINDS: Final = ("podmonitors", "prometheusrules", "servicemonitors")
CNI_PLUGINS: Final = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins puts them."""
CONTROL_PLANE_COMMANDS: Final = ("ip", "nsenter", "openssl", "sysctl", "unshare")
NODE_COMMANDS: Final = ("containerd", "ctr", "runc", "iptables", str(CNI_PLUGINS / "bridge"))
DOWNLOAD_SECONDS_MAX: Final = 900.0
BUILD_SECONDS_MAX: Final = 5_400.0

Say = Callable[[str], None]


class CannotBuild(Exception):
    """Programs could not be built; the message says which, and what Go said."""


def version() -> str:
    """Of Kubernetes, as `v1.34.4`."""
    found = re.search(r"^\tk8s\.io/kubernetes (v[\d.]+)$", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, "go.mod requires Kubernetes"
    return found[1]


def programs() -> Path | None:
    """The directory with what was built from the present sources; None where nothing was."""
    directory = _kept_at()
    return directory if directory.is_dir() else None


def why_no_control_plane() -> str:
    """Why etcd, API server, controllers and scheduler cannot run here; empty when they can."""
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return "a Kubernetes node needs Linux on x86-64 or arm64"
    if os.geteuid() != 0:
        return "a Kubernetes node needs root: it has a network namespace of its own"
    if missing := [name for name in CONTROL_PLANE_COMMANDS if program(name) is None]:
        return f"commands are missing, of iproute2, openssl, procps or util-linux: {', '.join(missing)}"
    if programs() is None:
        return "the programs of a Kubernetes node are not built: make kubernetes builds them, in minutes"
    return ""


def why_no_node() -> str:
    """Why pods cannot run here; empty when they can."""
    if reason := why_no_control_plane():
        return reason
    if missing := [name for name in NODE_COMMANDS if program(name) is None]:
        return f"no pod can run, {', '.join(missing)} missing: make deploy-setup installs them on Debian"
    return ""


def build(say: Say) -> Path:
    """The directory of `programs`, made if need be: minutes, at the lowest priority. Raises CannotBuild."""
    with locked("kubernetes"):
        return programs() or _build(say)


def _build(say: Say) -> Path:
    go = program("go")
    if go is None:
        raise CannotBuild("there is no `go` on the PATH")
    kept_at = _kept_at()
    kept_at.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="building-", dir=kept_at.parent))
    directory.chmod(0o755)
    try:
        say(f"Kubernetes {version()} from Go modules: the first time this takes 10 to 20 minutes")
        _go(say, "download", [str(go), "mod", "download"], DOWNLOAD_SECONDS_MAX)
        for name, package, linked in (
            ("hyperkube", ".", _versions_told()),
            ("coredns", "./coredns", ""),
            ("pause", "./pause", ""),
        ):
            flags = ["-trimpath", "-ldflags", f"-s -w {linked}".strip()]
            command = ["nice", "-n", "19", str(go), "build", *flags, "-o", str(directory / name), package]
            _go(say, name, command, BUILD_SECONDS_MAX)
        for name in PROGRAM_NAMES:
            (directory / name).symlink_to("hyperkube")
        (directory / "images").mkdir()
        write_image(directory / "images/pause.tar", PAUSE_IMAGE, directory / "pause", platform.machine())
        _definitions_of_the_operator(say, str(go), directory / "definitions")
        directory.rename(kept_at)
    except OSError as error:
        raise CannotBuild(str(error)) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return kept_at


def environment(programs: Path) -> Mapping[str, str]:
    """That of a process which finds the programs by their names."""
    return {**os.environ, "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def _kept_at() -> Path:
    digest = hashlib.sha256(f"{OPERATOR_MODULE} {platform.machine()}".encode())
    for path in sorted((SOURCES / "go.mod", SOURCES / "go.sum", *SOURCES.rglob("*.go"))):
        digest.update(path.read_bytes())
    return cache_directory() / "kubernetes" / f"{version()}-{digest.hexdigest()[:12]}"


def _versions_told() -> str:
    """Linker flags without which the API server says v0.0.0, which helm takes for too old."""
    major, minor, _ = version().removeprefix("v").split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": version(),
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/component-base/version.gitTreeState": "clean",
        "k8s.io/client-go/pkg/version.gitVersion": version(),
    }
    return " ".join(f"-X {name}={value}" for name, value in values.items())


def _definitions_of_the_operator(say: Say, go: str, directory: Path) -> None:
    said = _go(
        say, "definitions", [str(go), "mod", "download", "-json", OPERATOR_MODULE], DOWNLOAD_SECONDS_MAX
    )
    module = json.loads(said)
    if module["Sum"] != OPERATOR_SUM:
        raise CannotBuild(f"{OPERATOR_MODULE} has the sum {module['Sum']}, not {OPERATOR_SUM}")
    source = Path(module["Dir"]) / "example/prometheus-operator-crd"
    directory.mkdir()
    for kind in OPERATOR_KINDS:
        shutil.copyfile(source / f"monitoring.coreos.com_{kind}.yaml", directory / f"{kind}.yaml")


def _go(say: Say, what: str, command: list[str], seconds_max: float) -> str:
    began = time.monotonic()
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    try:
        done = subprocess.run(
            command,
            cwd=SOURCES,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"{what}: not within {seconds_max:g} s") from error
    if done.returncode != 0:
        raise CannotBuild(f"{what}: {(done.stdout + done.stderr).strip()[-1_000:]}")
    say(f"{what}: {time.monotonic() - began:.1f} s")
    return done.stdout
