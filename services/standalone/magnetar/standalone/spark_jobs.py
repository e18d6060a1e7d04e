"""`magnetar spark`: jobs on topics and their ledgers; magnetar-spark does them, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from magnetar.standalone import spark_process
from magnetar.standalone.lazy_group import WholeSentences
from magnetar.standalone.offload import arguments_of

Command = TypeVar("Command", bound=Callable[..., Any])

_COMMON = (
    click.option(
        "--service",
        envvar="MAGNETAR_OFFLOAD_SERVICE",
        default="127.0.0.1:6750",
        show_default=True,
        metavar="HOST:PORT",
        help="magnetarControlPort of a broker or a standalone; also from MAGNETAR_OFFLOAD_SERVICE.",
    ),
    click.option(
        "--topic",
        "-t",
        multiple=True,
        required=True,
        metavar="NAME",
        help="A topic, all of its partitions if it has some; repeat it for several.",
    ),
)
_OF_SPARK = (
    click.option(
        "--master",
        default="",
        metavar="URL",
        help="Of Spark: local[N], or a cluster's, for which spark-submit is run. Default: all cores here.",
    ),
    click.option(
        "--deploy-mode",
        default="",
        type=click.Choice(["", "client", "cluster"]),
        help="Of spark-submit, where the driver runs; default: client.",
    ),
    click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeat it for several."
    ),
    click.option("--bookie-trust-certs", default="", metavar="FILE", help="TLS to bookies: PEM, trusted."),
    click.option("--bookie-certificate", default="", metavar="FILE", help="TLS to bookies: PEM, the job's."),
    click.option("--bookie-key", default="", metavar="FILE", help="TLS to bookies: PEM, the job's."),
    click.option(
        "--bookie-server-name", default="", metavar="NAME", help="TLS to bookies: in their certificates."
    ),
    click.option("--json", "json", is_flag=True, help="The result as a line of JSON."),
)


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group(cls=WholeSentences)
def spark() -> None:
    """Jobs on topics and their offloaded ledgers, with Spark.

    Needs magnetar-spark and Java 17. Credentials of object stores come from the environment:
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and the like.
    """


@spark.command()
@_options(
    *_COMMON,
    click.option(
        "--to",
        required=True,
        metavar="URI",
        help="Where the result goes: a directory, file:///dir or s3://bucket/prefix.",
    ),
    click.option("--tail", is_flag=True, help="Also what is not offloaded yet, up to the end as it is now."),
    click.option(
        "--before",
        default="",
        metavar="LEDGER:ENTRY",
        help="Only messages before this message id, of one topic without partitions.",
    ),
    click.option(
        "--files",
        type=click.IntRange(0, 10_000),
        default=0,
        metavar="N",
        help="So many files; default: one for each Spark task.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the result of an earlier run."),
    *_OF_SPARK,
)
def compact(master: str, deploy_mode: str, conf: Sequence[str], **given: Any) -> None:
    """Write the latest value of each key of a topic's offloaded history as Parquet.

    A message without value deletes its key; messages without a key are left out. The topic stays as it is.

    \b
    magnetar spark compact --topic orders --to file:///tmp/compacted

    Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no broker or no magnetar-spark.
    """
    spark_process.start("compact", arguments_of(given), master=master, conf=conf, deploy_mode=deploy_mode)


@spark.command()
@_options(
    *_COMMON,
    click.option("--ledger", type=int, multiple=True, metavar="ID", help="Only this ledger; repeat it."),
    *_OF_SPARK,
)
def verify(master: str, deploy_mode: str, conf: Sequence[str], **given: Any) -> None:
    """Compare topics with their offloaded ledgers, message by message.

    Ledgers that bookies or the broker still have are compared with their entries; those that have left are
    checked against their manifests. Differences are lines on stderr.

    \b
    magnetar spark verify --topic orders

    Exit codes: 0 equal, 1 differences, 2 the command line is wrong, 3 no broker or no magnetar-spark.
    """
    given["ledger"] = tuple(str(each) for each in given["ledger"])
    spark_process.start("verify", arguments_of(given), master=master, conf=conf, deploy_mode=deploy_mode)
