"""The image with Spark: a session without rights, on a read-only root, reads what it has written."""

from __future__ import annotations

import pytest

from tests.deploy.containers import CAREFUL
from tools.images.build import ensure
from tools.images.docker import Docker
from tools.images.stand_ins import NoStandIn
from tools.images.wheels import NotFetched

TMP = ("--tmpfs", "/tmp:size=512m,mode=1777,exec")
"""Libraries that the Java machine brings are unpacked there and loaded: Docker's own choice is noexec."""
PROGRAM = """
import os
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = session.createDataFrame([(each, str(each)) for each in range(100)], ["number", "text"])
rows.write.option("compression", "snappy").parquet("/tmp/rows")
print("counted", session.read.parquet("/tmp/rows").count(), "as", os.getuid())
session.stop()
"""


@pytest.fixture(scope="module")
def image(docker: Docker) -> str:
    try:
        return ensure(docker, ["spark"])["spark"]
    except (NoStandIn, NotFetched) as error:
        pytest.skip(f"no test of the image with Spark runs: {error}")


@pytest.mark.full
def test_a_session_writes_and_reads_parquet_without_any_right(docker: Docker, image: str) -> None:
    careful = [part for part in CAREFUL if part not in ("--tmpfs", "/tmp:size=64m,mode=1777")]
    printed = docker.run("run", "--rm", *careful, *TMP, "--entrypoint", "python3", image, "-c", PROGRAM)
    assert "counted 100 as 10001" in printed


@pytest.mark.full
def test_it_has_the_offload_job(docker: Docker, image: str) -> None:
    printed = docker.run("run", "--rm", *CAREFUL, "--network", "none", image, "offload", "run", "--help")
    assert "--service" in printed
