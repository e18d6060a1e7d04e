"""An S3 endpoint on the node, for offload.

python -m tests.kubernetes.object_store serve|list ADDRESS PORT BUCKET
"""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

import boto3  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

REGION: Final = "us-east-1"
ACCESS_KEY: Final = "somebody"
SECRET_KEY: Final = "not-for-metadata"


def serve(address: str, port: int, bucket: str) -> None:
    """Until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # before there are threads, which inherit it
    server = ThreadedMotoServer(ip_address=address, port=port, verbose=False)
    server.start()
    _client(address, port).create_bucket(Bucket=bucket)
    signal.sigwait([signal.SIGTERM])
    server.stop()


def keys(address: str, port: int, bucket: str) -> list[str]:
    """Of all objects."""
    pages = _client(address, port).get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [str(one["Key"]) for page in pages for one in page.get("Contents", ())]


def _client(address: str, port: int) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=f"http://{address}:{port}",
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


def main() -> None:
    verb, address, port, bucket = sys.argv[1:]
    if verb == "serve":
        serve(address, int(port), bucket)
    else:
        print(*keys(address, int(port), bucket), sep="\n")


if __name__ == "__main__":
    main()
