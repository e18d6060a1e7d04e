"""The Spark session of a job: on this machine unless spark-submit says otherwise."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from magnetar.common.errors import ConfigError
from pyspark.sql import SparkSession

TASK_TRIES: Final = 4

LOCAL_MASTER: Final = f"local[*,{TASK_TRIES}]"
"""All cores of this machine; local[N] alone would try each task only once."""

_LOGGING: Final = (Path(__file__).parent / "log4j2.properties").as_uri()
"""Log level of Spark, which hides routine messages."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two tasks that write the same object would only be in each other's way.
    "spark.speculation": "false",
    # A ledger's tasks do not wait until those of the ledger before are done.
    "spark.scheduler.mode": "FAIR",
}


def open_session(name: str, master: str, conf: Mapping[str, str]) -> SparkSession:
    """A session; `master` is empty under spark-submit, which has said it. Raises ConfigError."""
    if not master and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = LOCAL_MASTER
    local = master.startswith("local")
    if local and shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise ConfigError("Spark needs Java 17 or newer: install it, or set JAVA_HOME")
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(with_tries(master))
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        java = (f"-Dlog4j2.configurationFile={_LOGGING}", conf.get(_JAVA_OPTIONS, ""))
        conf = {**conf, _JAVA_OPTIONS: " ".join(filter(None, java))}
    for key, value in {**_CONF, **conf}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def with_tries(master: str) -> str:
    """A local master whose tasks are tried several times, as those of a cluster are."""
    if master == "local":
        return f"local[1,{TASK_TRIES}]"
    if master.startswith("local[") and master.endswith("]") and "," not in master:
        return f"{master[:-1]},{TASK_TRIES}]"
    return master
