"""`magnetar spark`: starts magnetar-spark jobs on topics and ledgers in a separate process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from magnetar.cli.jobs import spark_process
from magnetar.cli.jobs.options import OF_SPARK, SERVICE, arguments_of, as_json, topics, with_options
from magnetar.cli.lazy_group import WholeSentences

_COMMON = (*SERVICE, topics(required=True))
_LAST = (*OF_SPARK, as_json("Print the result as a JSON line."))


@click.group(cls=WholeSentences)
def spark() -> None:
    """Run Spark jobs on topics and their offloaded ledgers.

    Requires magnetar-spark and Java 17. Object store credentials come from the environment:
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and the like.
    """


@spark.command()
@with_options(
    *_COMMON,
    click.option(
        "--to",
        required=True,
        metavar="URI",
        help="Target of the result: a directory, file:///dir or s3://bucket/prefix.",
    ),
    click.option(
        "--tail",
        is_flag=True,
        help="Include messages that are not offloaded yet, up to the current end of the topic.",
    ),
    click.option(
        "--before",
        default="",
        metavar="LEDGER:ENTRY",
        help="Only messages before this message id; for a single non-partitioned topic.",
    ),
    click.option(
        "--files",
        type=click.IntRange(0, 10_000),
        default=0,
        metavar="N",
        help="Number of files; default: one per Spark task.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the result of an earlier run."),
    *_LAST,
)
def compact(master: str, deploy_mode: str, conf: Sequence[str], **given: Any) -> None:
    """Write the latest value of each key of a topic's offloaded history as Parquet.

    A message with an empty value deletes its key; messages without a key are skipped. The topic is not
    changed.

    \b
    magnetar spark compact --topic orders --to file:///tmp/compacted

    Exit codes: 0 done, 1 failed, 2 usage error, 3 no broker or no magnetar-spark.
    """
    spark_process.start("compact", arguments_of(given), master=master, conf=conf, deploy_mode=deploy_mode)


@spark.command()
@with_options(
    *_COMMON,
    click.option(
        "--ledger", type=int, multiple=True, metavar="ID", help="Only this ledger; repeat for several."
    ),
    *_LAST,
)
def verify(master: str, deploy_mode: str, conf: Sequence[str], **given: Any) -> None:
    """Compare topics with their offloaded ledgers, message by message.

    Ledgers that bookies or the broker still store are compared with their entries; all others are checked
    against their manifests. Differences are printed to stderr.

    \b
    magnetar spark verify --topic orders

    Exit codes: 0 equal, 1 differences, 2 usage error, 3 no broker or no magnetar-spark.
    """
    given["ledger"] = tuple(str(each) for each in given["ledger"])
    spark_process.start("verify", arguments_of(given), master=master, conf=conf, deploy_mode=deploy_mode)
