"""An S3 endpoint beside the tests that pods reach, for offload."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

REGION: Final = "us-east-1"
ACCESS_KEY: Final = "somebody"
SECRET_KEY: Final = "not-for-metadata"


class ObjectStore:
    """A bucket and where it is."""

    def __init__(self, url: str, bucket: str) -> None:
        self.url = url
        self.bucket = bucket

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [str(one["Key"]) for page in pages for one in page.get("Contents", ())]

    def client(self) -> Any:
        """Return a client of boto3."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )


@contextmanager
def object_store(node: str, bucket: str) -> Iterator[ObjectStore]:
    """Serve a bucket at the address of this machine from which a node of the cluster is reached."""
    address = address_towards(node)
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    try:
        store = ObjectStore(f"http://{address}:{server.get_host_and_port()[1]}", bucket)
        store.client().create_bucket(Bucket=bucket)
        yield store
    finally:
        server.stop()


def address_towards(host: str) -> str:
    """Return the address that this machine has for another one; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
