"""Encryption with the PyPI client: the broker carries what it cannot read, and may insist on it."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from tests.integration.admin_calls import admin
from tests.integration.clients import receive
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line


@pytest.fixture
def keys(tmp_path: Path) -> pulsar.CryptoKeyReader:
    """A pair of keys that producers and consumers share."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make keys with")
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    for arguments in (
        ("genrsa", "-out", str(private), "2048"),
        ("rsa", "-in", str(private), "-pubout", "-out", str(public)),
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    return pulsar.CryptoKeyReader(str(public), str(private))


def test_a_namespace_that_requires_encryption_takes_and_delivers_secrets_only(
    endpoint: Endpoint, new_client: Callable[..., pulsar.Client], keys: pulsar.CryptoKeyReader
) -> None:
    namespace = f"public/{uuid.uuid4().hex[:8]}"
    assert admin(endpoint, "PUT", f"namespaces/{namespace}")[0] == 204
    assert admin(endpoint, "POST", f"namespaces/{namespace}/encryptionRequired", True)[0] == 204
    topic = f"persistent://{namespace}/secrets"
    consumer = new_client().subscribe(topic, "sub", crypto_key_reader=keys)
    with pytest.raises(pulsar.PulsarException):
        new_client(operation_timeout_seconds=2).create_producer(topic)
    for batching in (False, True):
        producer = new_client().create_producer(
            topic, encryption_key="owner", crypto_key_reader=keys, batching_enabled=batching
        )
        for number in range(10):
            producer.send_async(b"secret %d" % number, lambda result, _: None)
        producer.flush()
        assert [receive(consumer).data() for _ in range(10)] == [b"secret %d" % n for n in range(10)]
    with line(endpoint) as c:
        c.subscribe(topic, "spy")
        c.flow(100)
        seen = c.expect("message")
        assert seen.metadata is not None
        assert [key.key for key in seen.metadata.encryption_keys] == ["owner"]
        assert b"secret" not in seen.payload
