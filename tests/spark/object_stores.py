"""An S3 endpoint in this process, and what those who use it need in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3  # type: ignore[import-untyped]
from magnetar.testing.free_ports import free_ports
from moto.server import ThreadedMotoServer

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3:
    """A running endpoint with one bucket."""

    endpoint_url: str
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        """Where credentials and endpoints come from, of brokers, jobs and their tasks."""
        return {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "not-for-metadata",
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_DEFAULT_REGION": REGION,
        }

    def location(self, prefix: str) -> str:
        """A place of a test's own."""
        return f"s3://{self.bucket}/{prefix}"

    def client(self) -> Any:
        """boto3's own client, for a second opinion."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id="somebody",
            aws_secret_access_key="not-for-metadata",
        )


@contextmanager
def s3_server(bucket: str = "cold") -> Iterator[S3]:
    """An endpoint whose environment is this process's too, until the end."""
    (port,) = free_ports(1)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    s3 = S3(f"http://127.0.0.1:{port}", bucket)
    before = {name: os.environ.get(name) for name in s3.environment}
    os.environ.update(s3.environment)
    try:
        s3.client().create_bucket(Bucket=bucket)
        yield s3
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.stop()
