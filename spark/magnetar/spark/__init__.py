"""Magnetar for Spark: topics as tables and streams, cold ledgers as Parquet, jobs on both.

import magnetar.spark
magnetar.spark.register(spark)
spark.read.format("magnetar").option("topic", "my-topic").load()
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# PySpark forks to start Java. Where gRPC was used before, its threads begin anew in the child, which closes
# their descriptors: one start in fifty of a busy machine was aborted. Nothing here uses gRPC after a fork.
# gRPC looks at this once, when it is first imported, which is after this package.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_topic", "register"]


def register(spark: SparkSession) -> None:
    """Register the format "magnetar" with a session. Idempotent.

    Raises ConfigError if the Python of a local session's workers lacks magnetar-spark.
    """
    from magnetar.spark.data_source import register as register_format
    from magnetar.spark.worker_python import check_worker_python

    check_worker_python(spark)
    register_format(spark)


def read_topic(spark: SparkSession, options: Mapping[str, Any]) -> DataFrame:
    """Return topics as a frame; Spark's own Parquet reader reads the offloaded part, with full pushdown.

    `options` are those of the format "magnetar". See magnetar.spark.native.topic_frame.
    """
    from magnetar.spark.native.topic_frame import read_topic as read

    return read(spark, options)
