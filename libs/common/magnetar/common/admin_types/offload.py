"""Values of Pulsar's offload policies, shared by brokers and the command line."""

from __future__ import annotations

from typing import Final

BOOKIES_FIRST: Final = "bookkeeper-first"
OBJECTS_FIRST: Final = "tiered-storage-first"
READ_PRIORITIES: Final = (BOOKIES_FIRST, OBJECTS_FIRST)

DRIVERS: Final = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")
S3_DRIVERS: Final = ("s3", "aws-s3")
GCS_DRIVER: Final = "google-cloud-storage"
FILES_DRIVER: Final = "filesystem"
