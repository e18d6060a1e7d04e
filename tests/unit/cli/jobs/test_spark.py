"""`magnetar spark`: what is given on the command line is what the jobs of magnetar-spark understand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from magnetar.cli.jobs import spark as spark_jobs
from magnetar.cli.jobs import spark_process
from magnetar.spark import compact, verify

TLS = [
    *("--service-trust-certs", "ca.pem", "--service-certificate", "job.pem"),
    *("--bookie-key", "job.key", "--bookie-server-name", "bookies"),  # names of release 0.1.0
]


class Started:
    """Takes the place of spark_process.start."""

    def __init__(self) -> None:
        self.module = ""
        self.arguments: list[str] = []
        self.of_spark: dict[str, Any] = {}

    def start(self, module: str, arguments: Sequence[str], **of_spark: Any) -> None:
        self.module, self.arguments, self.of_spark = module, list(arguments), of_spark


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr(spark_process, "start", made.start)
    monkeypatch.delenv("MAGNETAR_OFFLOAD_SERVICE", raising=False)
    return made


def run(*arguments: str) -> None:
    result = CliRunner().invoke(spark_jobs.spark, arguments)
    assert result.exit_code == 0, result.output


def test_compact_is_started_with_all_that_was_given(started: Started) -> None:
    run(
        *("compact", "--service", "b:1", "-t", "one", "--topic", "two", "--to", "s3://cold/x", "--tail"),
        *("--before", "3:4", "--files", "7", "--overwrite", "--json", *TLS),
        *("--master", "k8s://x", "--deploy-mode", "cluster", "--conf", "a=b", "--conf", "c=d"),
    )
    assert started.module == "compact"
    assert started.of_spark == {"master": "k8s://x", "deploy_mode": "cluster", "conf": ("a=b", "c=d")}
    given = compact.parser().parse_args(started.arguments)
    assert vars(given) == {
        "service": "b:1",
        "topic": ["one", "two"],
        "to": "s3://cold/x",
        "tail": True,
        "before": "3:4",
        "files": 7,
        "overwrite": True,
        "json": True,
        "master": "",
        "conf": [],
        "service_trust_certs": "ca.pem",
        "service_certificate": "job.pem",
        "service_key": "job.key",
        "service_server_name": "bookies",
    }


def test_verify_is_started_with_all_that_was_given(started: Started) -> None:
    run("verify", "--topic", "t", "--ledger", "5", "--ledger", "7", *TLS)
    assert started.module == "verify"
    given = verify.parser().parse_args(started.arguments)
    assert (given.service, given.topic, given.ledger) == ("127.0.0.1:6750", ["t"], [5, 7])
    assert (given.json, given.service_key) == (False, "job.key")


@pytest.mark.parametrize("arguments", [["compact", "--topic", "t"], ["compact", "--to", "x"], ["verify"]])
def test_missing_requirements_are_reported_before_spark_starts(
    started: Started, arguments: list[str]
) -> None:
    result = CliRunner().invoke(spark_jobs.spark, arguments)
    assert result.exit_code == 2
    assert "Missing option" in result.output
    assert not started.module
