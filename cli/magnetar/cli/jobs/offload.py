"""`magnetar offload`: starts offload jobs of magnetar-spark in a separate process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from magnetar.cli.jobs import spark_process
from magnetar.cli.jobs.options import OF_SPARK, SERVICE, arguments_of, as_json, topics, with_options
from magnetar.cli.lazy_group import WholeSentences

MODULE: Final = "offload"

_TOPICS = (
    topics(required=False),
    click.option(
        "--topic-pattern", default="", metavar="REGEX", help="Regular expression for full topic names."
    ),
)
_JSON = as_json("Lines of JSON.")


@click.group(cls=WholeSentences)
def offload() -> None:
    """Offload closed ledgers as Parquet to an object store. Brokers still serve them; any engine can query
    them.

    `run` requires magnetar-spark with PySpark, and Java 17; `status` requires neither. Credentials of the
    object store come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and
    the like.
    """


@offload.command()
@with_options(
    *SERVICE,
    *_TOPICS,
    click.option("--want", is_flag=True, help="First mark all closed ledgers of the topics for offload."),
    click.option(
        "--location",
        default="",
        metavar="URI",
        help="With --want: target, file:///dir or s3://bucket/prefix; default: as in policies.",
    ),
    click.option(
        "--exact", is_flag=True, help="With --want: store the raw bytes of entries beside the rows."
    ),
    click.option(
        "--again",
        is_flag=True,
        help="With --want: also offload again ledgers that bookies still store, such as damaged ones.",
    ),
    click.option(
        "--before",
        default="",
        metavar="LEDGER:ENTRY",
        help="With --want: only ledgers entirely before this message id.",
    ),
    click.option(
        "--every",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Seconds between rounds, until stopped; default: one round.",
    ),
    click.option(
        "--ledgers-at-once",
        type=click.IntRange(1, 10_000),
        default=2,
        show_default=True,
        metavar="N",
        help="Maximum ledgers offloaded concurrently.",
    ),
    click.option(
        "--ledgers-max",
        type=click.IntRange(1, 10_000),
        metavar="N",
        help="Maximum ledgers per round.",
    ),
    click.option(
        "--part-mb",
        type=click.FloatRange(min=0, min_open=True),
        default=128.0,
        show_default=True,
        metavar="MB",
        help="Approximate entries per Parquet object and task.",
    ),
    click.option(
        "--patience",
        type=click.FloatRange(min=0, min_open=True),
        default=180.0,
        show_default=True,
        metavar="SECONDS",
        help="Timeout of steps while a broker is unavailable.",
    ),
    click.option(
        "--heartbeat",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Interval of heartbeats to brokers.",
    ),
    *OF_SPARK,
    _JSON,
)
def run(master: str, deploy_mode: str, conf: Sequence[str], **given: Any) -> None:
    """Offload pending ledgers: those marked by policies, by `magnetar admin topics offload`, or by --want.

    \b
    magnetar offload run --want --topic my-topic --location file:///var/lib/cold
    magnetar offload run --every 300 --service broker:6750 --master k8s://https://kubernetes:6443

    Exit codes: 0 done, 1 a ledger failed, 2 usage error, 3 no broker or no magnetar-spark.
    """
    spark_process.start(
        MODULE, ["run", *arguments_of(given)], master=master, conf=conf, deploy_mode=deploy_mode
    )


@offload.command()
@with_options(*SERVICE, *_TOPICS, _JSON)
def status(**given: Any) -> None:
    """Show the offload state of every ledger of topics.

    \b
    magnetar offload status --topic my-topic
    """
    spark_process.start(MODULE, ["status", *arguments_of(given)], needed=())


@offload.command()
@with_options(
    *SERVICE,
    click.option(
        "--location",
        multiple=True,
        required=True,
        metavar="URI",
        help="Location to sweep; repeat for several.",
    ),
    click.option(
        "--grace-hours",
        type=click.FloatRange(min=0),
        default=24.0,
        show_default=True,
        metavar="HOURS",
        help="Minimum age of the newest object of an unreferenced attempt.",
    ),
    click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing."),
    click.option(
        "--force",
        is_flag=True,
        help="Sweep even if much of the location looks unreferenced; run --dry-run first.",
    ),
    _JSON,
)
def sweep(**given: Any) -> None:
    """Delete unreferenced objects: those of deleted ledgers and of failed attempts.

    \b
    magnetar offload sweep --location file:///var/lib/cold --dry-run
    """
    spark_process.start(MODULE, ["sweep", *arguments_of(given)], needed=("pyarrow",))
