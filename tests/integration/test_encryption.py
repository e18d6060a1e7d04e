"""Encryption with the PyPI client: the broker carries what it cannot read, and may insist on it."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main

from tests.integration.admin_calls import admin
from tests.integration.clients import receive
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line

CHUNKED_BYTES = 6_000_000
"""More than a message may have."""


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


def magnetar(endpoint: Endpoint, *arguments: str, code: int = 0) -> str:
    """Runs a command of `magnetar` in this process and returns its output."""
    done = CliRunner().invoke(main, [*arguments, "--url", endpoint.service_url])
    assert done.exit_code == code, (arguments, done.output, done.exception)
    return done.stdout


def test_the_command_line_decrypts_what_the_pypi_client_encrypts(
    endpoint: Endpoint,
    new_client: Callable[..., pulsar.Client],
    keys: pulsar.CryptoKeyReader,
    tmp_path: Path,
    topic: str,
) -> None:
    client = new_client()
    encrypting = {"encryption_key": "owner", "crypto_key_reader": keys}
    batched = client.create_producer(topic, compression_type=pulsar.CompressionType.ZLib, **encrypting)
    for number in range(3):
        batched.send_async(b"batched %d" % number, lambda result, _: None, partition_key="k")
    batched.flush()
    single = client.create_producer(topic, batching_enabled=False, **encrypting)
    single.send(b"single")
    chunked = client.create_producer(topic, batching_enabled=False, chunking_enabled=True, **encrypting)
    chunked.send(b"x" * CHUNKED_BYTES)
    expected = [*(f"batched {number}" for number in range(3)), "single", "x" * CHUNKED_BYTES]
    reading = ("consume", topic, "-p", "earliest", "--json", "-n")
    private = ("--encryption-private-key", f"owner={tmp_path / 'private.pem'}")
    shown = [json.loads(line) for line in magnetar(endpoint, *reading, "5", "-s", "a", *private).splitlines()]
    assert [each["content"] for each in shown] == expected
    assert not any("encrypted" in each for each in shown)
    opaque = [json.loads(line) for line in magnetar(endpoint, *reading, "2", "-s", "b", code=1).splitlines()]
    assert [each["encrypted"] for each in opaque] == [["owner"]] * 2
    assert not any("content" in each for each in opaque)
    wrong = tmp_path / "wrong.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(wrong), "2048"], check=True, capture_output=True)
    single.send(b"last")
    plain = client.create_producer(topic)
    plain.send(b"not encrypted")
    discarding = ("--encryption-private-key", f"owner={wrong}", "--crypto-failure-action", "discard")
    (left,) = [
        json.loads(line) for line in magnetar(endpoint, *reading, "1", "-s", "b", *discarding).splitlines()
    ]
    assert left["content"] == "not encrypted"
    client.subscribe(topic, "b").close()
    backlog = admin(endpoint, "GET", f"{topic.replace('://', '/')}/stats")[1]["subscriptions"]["b"][
        "msgBacklog"
    ]
    assert backlog == 0


def test_batches_that_cannot_be_decrypted_use_up_no_permits(
    endpoint: Endpoint, new_client: Callable[..., pulsar.Client], keys: pulsar.CryptoKeyReader, topic: str
) -> None:
    producer = new_client().create_producer(
        topic,
        encryption_key="owner",
        crypto_key_reader=keys,
        batching_enabled=True,
        batching_max_messages=10,
        batching_max_publish_delay_ms=60_000,
    )
    for number in range(300):
        producer.send_async(b"%d" % number, lambda result, _: None)
    producer.flush()
    shown = magnetar(
        endpoint, "consume", topic, "-s", "s", "-p", "earliest", "-n", "30", "-q", "20", "--json", code=1
    )
    assert [json.loads(line)["encrypted"] for line in shown.splitlines()] == [["owner"]] * 30


def test_what_the_command_line_encrypts_is_read_by_the_pypi_client(
    endpoint: Endpoint,
    new_client: Callable[..., pulsar.Client],
    keys: pulsar.CryptoKeyReader,
    tmp_path: Path,
    topic: str,
) -> None:
    consumer = new_client().subscribe(topic, "sub", crypto_key_reader=keys)
    public = ("--encryption-public-key", f"owner={tmp_path / 'public.pem'}")
    magnetar(endpoint, "produce", topic, "-m", "a,b", *public)
    magnetar(endpoint, "produce", topic, "-m", "c", "-db", *public)
    assert [receive(consumer).data() for _ in range(3)] == [b"a", b"b", b"c"]
    shown = magnetar_admin(endpoint, "topics", "examine-messages", topic, "-i", "earliest")
    assert "X-Pulsar-Is-Encrypted: true" in shown
    assert "\nencrypted: " in shown


def magnetar_admin(endpoint: Endpoint, *arguments: str) -> str:
    """Runs a command of `magnetar admin` in this process and returns its output."""
    done = CliRunner().invoke(main, ["admin", "--admin-url", endpoint.http_url, *arguments])
    assert done.exit_code == 0, (arguments, done.output, done.exception)
    return done.stdout
