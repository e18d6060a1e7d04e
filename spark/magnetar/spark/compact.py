"""`magnetar spark compact`: writes the latest value of each key of a topic's history as Parquet.

Reads the offloaded ledgers, and with --tail what follows them; a message with an
empty value, or none, deletes its key. The topic itself stays as it is.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

if (
    __name__ == "__main__"
    and sys.path
    and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent
):
    del sys.path[0]  # spark-submit adds this directory, whose modules would hide others.

from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.offload.offload_pb2 import COMPLETE
from magnetar.spark.jobs.job_run import (
    CREDENTIALS,
    DONE,
    add_common,
    exit_code_of,
    session_of,
    topics_of,
    with_progress,
)
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.offload.options import service_of

FILES_MAX: Final = 10_000


class NothingOffloaded(MagnetarError):
    """There is no offloaded history to read."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="magnetar spark compact",
        description="Write the latest value of each key of a topic's offloaded history as Parquet, with "
        "Spark. Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no broker.",
        epilog=CREDENTIALS,
    )
    add_common(made)
    made.add_argument(
        "--to",
        required=True,
        metavar="URI",
        help="target of the result: a directory, file:///dir or s3://bucket/prefix",
    )
    made.add_argument(
        "--tail",
        action="store_true",
        help="include messages that are not offloaded yet, up to the current end of the topic",
    )
    made.add_argument(
        "--before",
        default="",
        metavar="LEDGER:ENTRY",
        help="only messages before this message id; for a single non-partitioned topic",
    )
    made.add_argument(
        "--files", type=int, default=0, metavar="N", help="number of files; default: one per Spark task"
    )
    made.add_argument("--overwrite", action="store_true", help="replace the result of an earlier run")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    given = parser().parse_args(arguments)
    return exit_code_of(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    from magnetar.spark.jobs.compaction import check_location, latest_by_key, write_parquet
    from magnetar.spark.offload.command import as_uri

    if not 0 <= given.files <= FILES_MAX:
        raise ConfigError(f"--files {given.files}: from 0 to {FILES_MAX}")
    location = as_uri(given.to)
    replaced = check_location(location, overwrite=given.overwrite)
    options = source_options(given, topics_of(given))
    began = time.monotonic()
    with session_of("magnetar spark compact", given) as session:
        from magnetar.spark.data_source import register

        register(session)
        messages = session.read.format("magnetar").options(**options).load()
        latest = latest_by_key(messages)
        if given.files:
            latest = latest.repartition(given.files)
        run = f"{time.time_ns() // 1_000_000:013d}-{secrets.token_hex(4)}"
        done = with_progress(session, "compacting", lambda: write_parquet(latest, location, run, replaced))
    seconds = time.monotonic() - began
    if given.json:
        print(json.dumps({**asdict(done), "seconds": round(seconds, 3)}))
    else:
        print(
            f"{done.keys:,} keys in {done.files:,} files, {done.byte_length / 1e6:,.1f} MB, at "
            f"{done.location}; {done.replaced:,} files of an earlier run deleted; {seconds:.1f} s"
        )
    return DONE


def source_options(given: argparse.Namespace, topics: Sequence[str]) -> dict[str, str]:
    """Return the options of the source. Raises ConfigError, NothingOffloaded and brokers' errors."""
    from magnetar.spark.jobs.compaction import source_columns

    service = service_of(given)
    options = {
        "offload.address": service.address,
        "topics": ",".join(topics),
        "columns": ",".join(source_columns()),
        "crypto.key.dir": "",  # The result would have in clear what its producers encrypted.
    }
    tls = {
        "offload.trust.certs": service.trust_certs,
        "offload.certificate": service.certificate,
        "offload.key": service.key,
        "offload.server.name": service.server_name,
    }
    options |= {option: value for option, value in tls.items() if value}
    if given.before:
        if len(topics) != 1:
            raise ConfigError("--before needs a single topic or partition")
        options["ending"] = given.before
    if not given.tail:
        ledgers = offloaded_ledgers(service, topics)
        if not any(ledgers.values()):
            raise NothingOffloaded(
                f"no ledger of {', '.join(given.topic)} is offloaded: run magnetar offload run, or give "
                "--tail to read from brokers and bookies"
            )
        options["ledgers"] = json.dumps(ledgers)
    return options


def offloaded_ledgers(service: ServiceAddress, topics: Sequence[str]) -> dict[str, list[int]]:
    """Return the ledgers of each topic that have complete objects."""
    with open_channel(service) as channel:
        return {
            topic: [
                each.ledger_id
                for each in channel.describe(topic).ledgers
                if each.HasField("offload") and each.offload.state == COMPLETE
            ]
            for topic in topics
        }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
