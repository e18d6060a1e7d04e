"""`magnetar find` in ledgers on S3: credentials, and what it says of those, buckets and objects that fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main
from s3fs import S3FileSystem

from tests.integration.harness import eventually, temporary_directory
from tests.integration.small_job import offload_all
from tests.spark.object_stores import REGION, S3, s3_server
from tests.spark.servers import SparkServer, close_ledgers, publish, pulsar_client

TOPIC = "persistent://public/default/on-s3"
MESSAGES, IN_LEDGER = 40, 20
ALLOWS_S3 = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


pytestmark = pytest.mark.full


@dataclass
class Stored:
    """A topic with two ledgers in a bucket, and the key of a user who may read it."""

    server: SparkServer
    s3: S3
    access_key: str
    secret_key: str

    def find(self, *arguments: str, code: int) -> Result:
        """Runs a search in this process, with connections of its own to the store."""
        S3FileSystem.clear_instance_cache()
        endpoint = self.server.endpoint
        urls = ["--url", endpoint.service_url, "--admin-url", endpoint.http_url]
        done = CliRunner().invoke(main, ["find", TOPIC, "--limit", "0", "--json", *arguments, *urls])
        assert done.exit_code == code, (done.output, done.exception)
        return done


def report_of(done: Result) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["report"]
    return report


def check_credentials(s3: S3, *, after: float) -> None:
    """Lets the endpoint check credentials after so many further requests."""
    url = f"{s3.endpoint_url}/moto-api/reset-auth"
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(url, str(after).encode(), plain, method="POST"), timeout=60) as answer:
        assert answer.status == 200


def user_key(s3: S3) -> tuple[str, str]:
    iam = boto3.client(
        "iam",
        endpoint_url=s3.endpoint_url,
        region_name=REGION,
        aws_access_key_id="root",
        aws_secret_access_key="root",
    )
    iam.create_user(UserName="finder")
    iam.put_user_policy(UserName="finder", PolicyName="s3", PolicyDocument=json.dumps(ALLOWS_S3))
    key = iam.create_access_key(UserName="finder")["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    directory = temporary_directory()
    with s3_server() as s3:
        settings = {"magnetarOffloadRefreshIntervalSeconds": "1"}
        server = SparkServer(directory, settings, environment=s3.environment)
        try:
            server.start()
            with pulsar_client(server.endpoint) as client:
                for first in range(0, MESSAGES, IN_LEDGER):
                    payloads = [b"line %d" % number for number in range(first, first + IN_LEDGER)]
                    publish(client, TOPIC, payloads)
                    close_ledgers(server.rest, TOPIC)
            offload_all(server.offload_address, TOPIC, s3.location("find"))

            def known() -> bool:
                info = server.rest.get(f"/{TOPIC.replace('://', '/')}/internal-info")
                return sum("offloadedTo" in each for each in info["ledgers"]) == 2

            eventually(known, "the owner knows")
            yield Stored(server, s3, *user_key(s3))
            server.stop()
        finally:
            server.kill()
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def checked(stored: Stored) -> Iterator[Stored]:
    """The same with an endpoint that refuses unknown credentials."""
    check_credentials(stored.s3, after=0)
    yield stored
    check_credentials(stored.s3, after=float("inf"))


def test_row_groups_are_read_with_credentials_of_the_environment(
    checked: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", checked.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", checked.secret_key)
    report = report_of(checked.find(code=0))
    assert report["found"] == MESSAGES
    assert report["objects"]["ledgers"] == report["objects"]["ofLedgers"] == 2
    assert report["objects"]["rows"] == MESSAGES
    assert report["brokers"]["messages"] == 0


def test_row_groups_are_read_with_a_profile(
    checked: Stored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        f"[reader]\naws_access_key_id={checked.access_key}\naws_secret_access_key={checked.secret_key}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "reader")
    assert report_of(checked.find(code=0))["found"] == MESSAGES


def test_wrong_credentials_are_named_and_every_ledger_is_counted(
    checked: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
    done = checked.find(code=1)
    assert "check the credentials in the environment" in done.stderr
    assert "--through-brokers" in done.stderr
    report = report_of(checked.find("--skip-unreadable", code=4))
    assert (report["found"], report["complete"], len(report["skipped"])) == (0, False, 2)
    assert report["objects"]["unreadable"] == 2


def test_a_missing_object_is_named_and_counted(stored: Stored) -> None:
    client = stored.s3.client()
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=stored.s3.bucket)["Contents"]]
    part = next(key for key in keys if key.endswith(".parquet"))
    content = client.get_object(Bucket=stored.s3.bucket, Key=part)["Body"].read()
    client.delete_object(Bucket=stored.s3.bucket, Key=part)
    try:
        done = stored.find(code=1)
        assert part.rpartition("/")[2] in done.stderr
        assert "it is not there" in done.stderr
        assert "--skip-unreadable" in done.stderr
        report = report_of(stored.find("--skip-unreadable", code=4))
        assert (report["found"], len(report["skipped"])) == (IN_LEDGER, 1)
        assert report["objects"]["unreadable"] == 1
    finally:
        client.put_object(Bucket=stored.s3.bucket, Key=part, Body=content)


def test_a_missing_bucket_is_named(stored: Stored) -> None:
    """The last test: the bucket is gone."""
    client = stored.s3.client()
    for each in client.list_objects_v2(Bucket=stored.s3.bucket)["Contents"]:
        client.delete_object(Bucket=stored.s3.bucket, Key=each["Key"])
    client.delete_bucket(Bucket=stored.s3.bucket)
    done = stored.find(code=1)
    assert f"s3://{stored.s3.bucket}" in done.stderr
    assert "check the name of the bucket and AWS_ENDPOINT_URL" in done.stderr
    report = report_of(stored.find("--skip-unreadable", code=4))
    assert report["objects"]["unreadable"] == 2
