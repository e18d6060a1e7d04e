"""The programs in admin_clients/, built: Apache Pulsar's own admin clients, which check a service.

Each is built into a temporary directory against the pinned client; what they download is kept by the
toolchains from one run to the next. A toolchain that is missing, or that cannot download, skips the test with
the reason.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pulsar
import pytest

from tests.integration.harness import Endpoint, external_endpoint

PROGRAMS = Path(__file__).parent / "admin_clients"
DOWNLOAD_SECONDS_MAX = 300.0
BUILD_SECONDS_MAX = 300.0
RUN_SECONDS_MAX = 120.0
MESSAGES = 10

SERVER_SETTINGS = {
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",  # downloads may take longer than topics last
}
"""What the programs expect of a broker."""


def publish_ten(client: pulsar.Client, topic: str) -> None:
    """The messages that the programs look for."""
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(MESSAGES):
        producer.send(f"message {number}".encode(), partition_key="key", properties={"number": str(number)})
    producer.close()


def java_program(directory: Path) -> list[str]:
    """The command that runs the one in Java; makes over 150 checks."""
    maven, java, compiler = _toolchain("mvn"), _toolchain("java"), _toolchain("javac")
    source = PROGRAMS / "java"
    told = directory / "class-path"
    shutil.copy(source / "pom.xml", directory)
    resolve = [maven, "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={told}"]
    if _run([*resolve, "--offline"], directory, DOWNLOAD_SECONDS_MAX).returncode != 0:
        _download(resolve, directory)
    class_path = told.read_text().strip()
    classes = directory / "classes"
    sources = sorted(str(path) for path in (source / "src").glob("*.java"))
    _build([compiler, "-nowarn", "-cp", class_path, "-d", str(classes), *sources], directory)
    return [java, "-cp", f"{classes}:{class_path}", "AdminClient"]


def go_program(directory: Path) -> list[str]:
    """The command that runs the one in Go; makes over 110 checks."""
    go = _toolchain("go")
    sources = directory / "go"
    shutil.copytree(PROGRAMS / "go", sources)
    _download([go, "list", "-deps", "."], sources)
    program = directory / "admin-client"
    _build([go, "build", "-o", str(program), "."], sources)
    return [str(program)]


def drive(
    program: Sequence[str],
    endpoint: Endpoint,
    topic: str,
    checks_min: int,
    *,
    patience_s: int = 0,
    run_s_max: float = RUN_SECONDS_MAX,
) -> None:
    """Run the program against the service: every line says ok, and its last one that all are.

    `patience_s`: how long a value that was set may take to be seen.
    """
    patience = ["20"] if external_endpoint() is not None else [str(patience_s)] if patience_s else []
    done = _run([*program, endpoint.http_url, endpoint.cluster, topic, *patience], None, run_s_max)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert not failed, "\n".join(failed)
    assert lines[-1:] == ["all ok"], f"{done.stdout}{done.stderr}"
    assert len(lines) > checks_min, f"only {len(lines)} checks ran"


def _toolchain(command: str) -> str:
    found = shutil.which(command)
    if found is None:
        pytest.skip(f"no {command} on the path: the admin client of its language cannot be built")
    return found


def _download(command: Sequence[str], directory: Path) -> None:
    """What the program is built from; skips where it cannot be had, as without a network."""
    try:
        done = _run(command, directory, DOWNLOAD_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pytest.skip(f"no downloads within {DOWNLOAD_SECONDS_MAX:g} s: {command[0]}")
    if done.returncode != 0:
        pytest.skip(f"cannot download with {command[0]}: {(done.stdout + done.stderr).strip()[-500:]}")


def _build(command: Sequence[str], directory: Path) -> None:
    done = _run(command, directory, BUILD_SECONDS_MAX)
    assert done.returncode == 0, f"{command[0]} cannot build:\n{done.stdout}{done.stderr}"


def _run(
    command: Sequence[str], directory: Path | None, seconds_max: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
