"""A client without schemas, or with simple ones, loads none of the packages that others need."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

def loaded():
    heavy = ("fastavro", "pydantic", "google.protobuf.descriptor_pb2")
    print(*[each for each in heavy if each in sys.modules])

import magnetar.client.schemas.auto, magnetar.client.schemas.protobuf_native
from magnetar.client.schemas.json import Json
Json('"string"')
loaded()
from magnetar.client.schemas.avro import Avro
Avro('"string"')
loaded()
"""


def test_packages_are_loaded_with_the_first_schema_that_needs_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "fastavro"]
