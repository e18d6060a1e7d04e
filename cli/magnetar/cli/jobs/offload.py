"""`magnetar offload`: closed ledgers as Parquet. magnetar-spark does the work, in a process of its own."""

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
    click.option("--topic-pattern", default="", metavar="REGEX", help="Topics whose full name it matches."),
)
_JSON = as_json("Lines of JSON.")


@click.group(cls=WholeSentences)
def offload() -> None:
    """Closed ledgers as Parquet in an object store: brokers still serve them, and any engine can query them.

    Needs magnetar-spark and, to run, Java 17. Credentials of object stores come from the environment:
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and the like.
    """


@offload.command()
@with_options(
    SERVICE,
    *_TOPICS,
    click.option(
        "--want", is_flag=True, help="First have the closed ledgers of the topics offloaded, all of them."
    ),
    click.option(
        "--location",
        default="",
        metavar="URI",
        help="With --want: where they go, file:///dir or s3://bucket/prefix; else as policies say.",
    ),
    click.option(
        "--exact", is_flag=True, help="With --want: keep the bytes of entries verbatim beside the rows."
    ),
    click.option(
        "--again",
        is_flag=True,
        help="With --want: those too that are offloaded and that bookies still have, such as damaged ones.",
    ),
    click.option(
        "--before",
        default="",
        metavar="LEDGER:ENTRY",
        help="With --want: only ledgers wholly before this message id.",
    ),
    click.option(
        "--every",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Look for more every so many seconds, until stopped; else once.",
    ),
    click.option(
        "--ledgers-at-once",
        type=click.IntRange(1, 10_000),
        default=2,
        show_default=True,
        metavar="N",
        help="Ledgers under way at a time.",
    ),
    click.option(
        "--ledgers-max",
        type=click.IntRange(1, 10_000),
        metavar="N",
        help="Stop a round after so many ledgers.",
    ),
    click.option(
        "--part-mb",
        type=click.FloatRange(min=0, min_open=True),
        default=128.0,
        show_default=True,
        metavar="MB",
        help="Entries in one Parquet object, and one task, about.",
    ),
    click.option(
        "--patience",
        type=click.FloatRange(min=0, min_open=True),
        default=180.0,
        show_default=True,
        metavar="SECONDS",
        help="How long steps wait for a broker that is away.",
    ),
    click.option(
        "--heartbeat",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="How often brokers hear that the job lives.",
    ),
    *OF_SPARK,
    _JSON,
)
def run(master: str, deploy_mode: str, conf: Sequence[str], **given: Any) -> None:
    """Offload what waits: as policies say, as `magnetar admin topics offload` said, or --want.

    \b
    magnetar offload run --want --topic my-topic --location file:///var/lib/cold
    magnetar offload run --every 300 --service broker:6750 --master k8s://https://kubernetes:6443

    Exit codes: 0 done, 1 some ledger failed, 2 the command line is wrong, 3 no broker or no magnetar-spark.
    """
    spark_process.start(
        MODULE, ["run", *arguments_of(given)], master=master, conf=conf, deploy_mode=deploy_mode
    )


@offload.command()
@with_options(SERVICE, *_TOPICS, _JSON)
def status(**given: Any) -> None:
    """How far every ledger of some topics is.

    \b
    magnetar offload status --topic my-topic
    """
    spark_process.start(MODULE, ["status", *arguments_of(given)])


@offload.command()
@with_options(
    SERVICE,
    click.option(
        "--location",
        multiple=True,
        required=True,
        metavar="URI",
        help="What to sweep; repeat it for several.",
    ),
    click.option(
        "--grace-hours",
        type=click.FloatRange(min=0),
        default=24.0,
        show_default=True,
        metavar="HOURS",
        help="Minimum age of the newest object of an unreferenced attempt.",
    ),
    click.option("--dry-run", is_flag=True, help="Say what would go, and delete nothing."),
    click.option(
        "--force", is_flag=True, help="Sweep although much looks lost: see what --dry-run says first."
    ),
    _JSON,
)
def sweep(**given: Any) -> None:
    """Delete unreferenced objects: of deleted ledgers, and of attempts that came to nothing.

    \b
    magnetar offload sweep --location file:///var/lib/cold --dry-run
    """
    spark_process.start(MODULE, ["sweep", *arguments_of(given)])
