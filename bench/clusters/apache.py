"""Apache's cluster from the anchor's jars: ZooKeeper, three bookies and two brokers, memory bounded."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from magnetar.testing.free_ports import free_ports

from bench.brokers import ANCHOR, APACHE_PULSAR, JAVA_OPENS
from bench.clusters import apache_settings
from bench.clusters.processes import JavaBroker, JavaProcess, listens
from bench.clusters.quorums import BOOKIES, BROKERS, SPARE_BOOKIES
from bench.clusters.side import Side
from tests.integration.harness import Endpoint

BOOKIE_SETTINGS: Final = ANCHOR.parent / "bookkeeper" / "bookie.conf"
SETUP_SECONDS_MAX: Final = 120.0

_NETTY: Final = (
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-XX:+PerfDisableSharedMem",
)


def apache_side(directory: Path, jars: Path) -> Side:
    """The cluster, of which nothing runs yet."""
    bookies = BOOKIES + SPARE_BOOKIES
    zookeeper_port, *ports = free_ports(1 + bookies + 2 * BROKERS)
    bookie_ports, broker_ports = ports[:bookies], ports[bookies:]
    pairs = list(zip(broker_ports[::2], broker_ports[1::2], strict=True))
    java = partial(_java, jars)

    settings = _written(
        directory / "zookeeper" / "zoo.cfg",
        apache_settings.zookeeper(directory / "zookeeper" / "data", zookeeper_port),
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    zookeeper = JavaProcess(
        directory / "zookeeper",
        "ZooKeeper",
        java(apache_settings.ZOOKEEPER_JVM, main, str(settings)),
        lambda: listens(zookeeper_port),
    )

    def set_up() -> None:
        main = "org.apache.pulsar.PulsarClusterMetadataSetup"
        arguments = apache_settings.metadata_setup(zookeeper_port, *pairs[0])
        done = subprocess.run(
            java(apache_settings.SETUP_JVM, main, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=zookeeper.directory,
            timeout=SETUP_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"the metadata of the cluster were not set up (status {done.returncode})\n"
                f"{done.stdout[-1_000:]}{done.stderr[-2_000:]}\n{zookeeper.log_tail()}"
            )

    return Side(
        APACHE_PULSAR,
        directory,
        zookeeper,
        [
            _bookie(java, directory, number, port, zookeeper_port)
            for number, port in enumerate(bookie_ports, 1)
        ],
        [_broker(java, directory, number, *pair, zookeeper_port) for number, pair in enumerate(pairs, 1)],
        set_up,
    )


def _bookie(
    java: partial[list[str]], directory: Path, number: int, port: int, zookeeper_port: int
) -> JavaProcess:
    name = f"bookie-{number}"
    own = directory / name
    text = apache_settings.bookie(BOOKIE_SETTINGS.read_text(), own, port, zookeeper_port)
    settings = _written(own / "bookie.conf", text)
    main = "org.apache.bookkeeper.server.Main"
    command = java(apache_settings.BOOKIE_JVM, main, "--conf", str(settings))
    return JavaProcess(own, name, command, lambda: listens(port))


def _broker(
    java: partial[list[str]], directory: Path, number: int, port: int, web_port: int, zookeeper_port: int
) -> JavaBroker:
    name = f"broker-{number}"
    text = apache_settings.broker((ANCHOR / "standalone.conf").read_text(), port, web_port, zookeeper_port)
    settings = _written(directory / name / "broker.conf", text)
    main = "org.apache.pulsar.PulsarBrokerStarter"
    command = java(apache_settings.BROKER_JVM, main, "--broker-conf", str(settings))
    endpoint = Endpoint(f"pulsar://127.0.0.1:{port}", f"http://127.0.0.1:{web_port}", apache_settings.CLUSTER)
    return JavaBroker(directory / name, name, command, endpoint)


def _java(jars: Path, memory: Sequence[str], main: str, *arguments: str) -> list[str]:
    opens = [word for package in JAVA_OPENS for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    logging = f"-Dlog4j.configurationFile={ANCHOR / 'log4j2.xml'}"
    return ["java", *memory, *_NETTY, *opens, logging, "-cp", f"{jars}/*", main, *arguments]


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
