"""Fixtures of the tests with Spark: one Spark session and one server for all of them, names of topics.

Starting either takes seconds, so both stay until the end; tests use topics, namespaces and directories of
their own. A test that kills its server or runs Spark in another process starts those itself.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import magnetar.spark  # noqa: F401 - before gRPC: what it sets for that makes starting Java safe
import pulsar
import pytest
from pyspark.sql import SparkSession

from tests.integration.harness import ROOT, launched, temporary_directory
from tests.integration.rest import Rest
from tests.spark.servers import SHORT_LIVED, SparkServer, pulsar_client

CORES = 2
TASK_TRIES = 2

_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure shows the log of the server that all tests share, and keeps its directory."""
    report = yield
    if report.failed:
        item.session.stash[_failed] = True
        server = getattr(item, "funcargs", {}).get("server")
        if server is not None and server.log_path not in launched:
            report.sections.append(("log of a process", server.log_tail()))
    return report


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What Spark, here or in a process of its own, has to find in its environment."""
    paths = [str(ROOT), str(ROOT / "tests/spark/site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),  # Python tasks of Spark import what tests define
        "PYTHONHASHSEED": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, spark_environment: dict[str, str]
) -> Iterator[SparkSession]:
    """The one Spark session: two cores of this machine, no web page, a warehouse that is thrown away."""
    directory = tmp_path_factory.mktemp("spark")
    before = {name: os.environ.get(name) for name in spark_environment}
    os.environ.update(spark_environment)
    session = (
        SparkSession.builder.master(f"local[{CORES},{TASK_TRIES}]")
        .appName("magnetar-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.streaming.metricsEnabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture(scope="session")
def _server(request: pytest.FixtureRequest) -> Iterator[SparkServer]:
    directory = temporary_directory()
    server = SparkServer(directory)
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        if request.session.stash.get(_failed, False):
            print(f"kept for a look: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def server(_server: SparkServer) -> SparkServer:
    """The standalone that all tests share; `offload_address` is where jobs and sources ask."""
    if not _server.running:
        _server.start()
    return _server


@pytest.fixture
def new_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., SparkServer]]:
    """Makes and starts standalones of the test's own, to be killed or configured; ended after the test."""
    with ExitStack() as stack:

        def make(settings: dict[str, str] | None = None, **options: Any) -> SparkServer:
            directory = temporary_directory()
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            made = SparkServer(directory, settings, **options)
            stack.callback(made.kill)
            made.start()
            return made

        yield make


@pytest.fixture
def rest(server: SparkServer) -> Rest:
    """The admin API of the shared server."""
    return server.rest


@pytest.fixture
def client(server: SparkServer) -> Iterator[pulsar.Client]:
    """A PyPI client of the shared server."""
    with pulsar_client(server.endpoint) as made:
        yield made


@pytest.fixture
def namespace(rest: Rest) -> str:
    """A namespace for one test."""
    return rest.new_namespace()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A persistent topic of public/default that no other test uses."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def location(tmp_path: Path) -> str:
    """Where offloaded ledgers go in one test: a directory, as a URI."""
    return (tmp_path / "cold").as_uri()
