"""The command line of `python -m magnetar.spark.offload`, which `magnetar offload` passes on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.offload.part_plan import PART_BYTES

SERVICE_VARIABLE: Final = "MAGNETAR_OFFLOAD_SERVICE"
DEFAULT_SERVICE: Final = "127.0.0.1:6750"

_TLS: Final = (
    ("trust-certs", "FILE", "the services' authority, a PEM file; turns on TLS to bookies"),
    ("certificate", "FILE", "the job's certificate, a PEM file"),
    ("key", "FILE", "its key, a PEM file"),
    ("server-name", "NAME", "name in services' certificates, where it is not the host of their address"),
)
"""Options of TLS to brokers and bookies: --service-NAME, earlier --bookie-NAME, and their variables."""

_CREDENTIALS: Final = (
    "Credentials of object stores come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_ENDPOINT_URL and the like."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all three commands."""
    made = argparse.ArgumentParser(
        prog="magnetar offload",
        description="Offload closed ledgers as Parquet, show their state, sweep objects.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="offload pending ledgers with Spark", epilog=_CREDENTIALS))
    _add_status(commands.add_parser("status", help="show the offload state of every ledger of topics"))
    _add_sweep(commands.add_parser("sweep", help="delete unreferenced objects", epilog=_CREDENTIALS))
    return made


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Ends the process with status 2 when something is wrong with them."""
    made = parser()
    given = made.parse_args(arguments)
    if given.command == "run" and not (given.topic or given.topic_pattern):
        for name in ("want", "location", "exact", "again"):
            if getattr(given, name):
                made.error(f"--{name} needs topics: give --topic or --topic-pattern")
    says_what = given.command == "run" and (given.location or given.exact or given.before or given.again)
    if says_what and not given.want:
        made.error("--location, --exact, --again and --before need --want")
    if given.command == "status" and not (given.topic or given.topic_pattern):
        made.error("no topics given: use --topic or --topic-pattern")
    return given


def add_service(command: argparse.ArgumentParser) -> None:
    """Add the options that say how brokers and bookies are reached; `service_of` reads them."""
    command.add_argument(
        "--service",
        default=os.environ.get(SERVICE_VARIABLE) or DEFAULT_SERVICE,
        metavar="HOST:PORT",
        help="a broker's or a standalone's magnetarControlPort, grpcs://HOST:PORT where it has mutual TLS; "
        f"also from {SERVICE_VARIABLE} (default: {DEFAULT_SERVICE})",
    )
    for name, metavar, text in _TLS:
        variable = f"MAGNETAR_OFFLOAD_{name.replace('-', '_').upper()}"
        command.add_argument(
            f"--service-{name}",
            f"--bookie-{name}",
            default=os.environ.get(variable, ""),
            metavar=metavar,
            help=f"{text}; also from {variable}",
        )


def service_of(given: argparse.Namespace) -> ServiceAddress:
    """Return the address and files with which jobs and their tasks reach brokers and bookies."""
    return ServiceAddress(
        address=given.service,
        trust_certs=given.service_trust_certs,
        certificate=given.service_certificate,
        key=given.service_key,
        server_name=given.service_server_name,
    )


def _add_topics(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--topic",
        "-t",
        action="append",
        default=[],
        metavar="NAME",
        help="a topic, all of its partitions if it has some; repeat it for several",
    )
    command.add_argument(
        "--topic-pattern", default="", metavar="REGEX", help="topics whose full name it matches"
    )


def _add_run(command: argparse.ArgumentParser) -> None:
    add_service(command)
    _add_topics(command)
    command.add_argument(
        "--want", action="store_true", help="first mark all closed ledgers of the topics for offload"
    )
    command.add_argument(
        "--location",
        default="",
        metavar="URI",
        help="with --want: target, such as file:///dir or s3://bucket/prefix; default: as in policies",
    )
    command.add_argument(
        "--exact", action="store_true", help="with --want: store the raw bytes of entries beside the rows"
    )
    command.add_argument(
        "--again",
        action="store_true",
        help="with --want: also offload again ledgers that bookies still store, such as damaged ones",
    )
    command.add_argument(
        "--before",
        default="",
        metavar="LEDGER:ENTRY",
        help="with --want: only ledgers entirely before this message id",
    )
    command.add_argument(
        "--every",
        type=_positive,
        metavar="SECONDS",
        help="seconds between rounds, until stopped; default: one round",
    )
    command.add_argument(
        "--ledgers-at-once", type=_count, default=2, metavar="N", help="under way at a time (default: 2)"
    )
    command.add_argument(
        "--ledgers-max", type=_count, default=0, metavar="N", help="maximum ledgers per round"
    )
    command.add_argument(
        "--part-mb",
        type=_positive,
        default=PART_BYTES / 2**20,
        metavar="MB",
        help=f"entries in one Parquet object, and one task, about (default: {PART_BYTES >> 20})",
    )
    command.add_argument(
        "--patience",
        type=_positive,
        default=180.0,
        metavar="SECONDS",
        help="timeout of steps while a broker is unavailable (default: 180)",
    )
    command.add_argument(
        "--heartbeat",
        type=_positive,
        default=60.0,
        metavar="SECONDS",
        help="interval of heartbeats to brokers (default: 60)",
    )
    command.add_argument(
        "--master",
        default="",
        metavar="URL",
        help="of Spark; default: all cores of this machine, under spark-submit what that says",
    )
    command.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; repeat it"
    )
    command.add_argument("--json", action="store_true", help="a line of JSON for each ledger")


def _add_status(command: argparse.ArgumentParser) -> None:
    add_service(command)
    _add_topics(command)
    command.add_argument("--json", action="store_true", help="a line of JSON for each ledger")


def _add_sweep(command: argparse.ArgumentParser) -> None:
    add_service(command)
    command.add_argument(
        "--location", action="append", required=True, metavar="URI", help="what to sweep; repeat it"
    )
    command.add_argument(
        "--grace-hours",
        type=_not_negative,
        default=24.0,
        metavar="HOURS",
        help="minimum age of the newest object of an unreferenced attempt (default: 24)",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="show what would be deleted, and delete nothing"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="sweep even if much of the location looks unreferenced; run --dry-run first",
    )
    command.add_argument("--json", action="store_true", help="a line of JSON for each location")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} has to be above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} has to be at least 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"{text} has to be 1 to 10,000")
    return value
