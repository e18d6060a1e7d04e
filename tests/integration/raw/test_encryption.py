"""Encrypted messages are delivered unchanged; where encryption is required, others are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line, payload_frame
from tests.integration.rest import Rest

SERVER_SETTINGS = {"encryptionRequireOnProducer": "true"}

pytestmark = pytest.mark.usefixtures("server")


def encrypted(sequence_id: int) -> pb.MessageMetadata:
    return pb.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=1,
        encryption_keys=[
            pb.EncryptionKeys(
                key="owner", value=b"\x00\xff wrapped", metadata=[pb.KeyValue(key="k", value="v")]
            )
        ],
        encryption_algo="algo",
        encryption_param=b"\x01\x02 nonce",
        compression=pb.LZ4,
        uncompressed_size=1_000,
        num_messages_in_batch=7,
    )


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_producer_that_does_not_encrypt_is_refused(endpoint: Endpoint, topic: str, domain: str) -> None:
    name = topic.replace("persistent", domain, 1)
    with line(endpoint) as c:
        message = c.expect_error(c.request("producer", topic=name, producer_id=1), "MetadataError")
        assert "ncrypt" in message
        c.open_producer(name, 2, encrypted=True)


@pytest.fixture
def required(endpoint: Endpoint) -> Iterator[None]:
    """The namespace's policy: the setting alone asks producers, not messages, as in Pulsar."""
    path, rest = "/namespaces/public/default/encryptionRequired", Rest(endpoint)
    rest.do("POST", path, True)
    yield
    rest.do("POST", path, False)


@pytest.mark.usefixtures("required")
def test_an_encrypted_message_is_delivered_bit_by_bit_and_a_plain_one_refused(
    endpoint: Endpoint, topic: str
) -> None:
    secret = bytes(range(256)) * 4
    with line(endpoint) as c:
        c.subscribe(topic)
        c.flow(100)
        c.open_producer(topic, encrypted=True)
        c.send_bytes(
            payload_frame(1, 0, secret, encrypted(0), num_messages=7) + payload_frame(1, 1, b"plain")
        )
        got = {frame.name: frame for frame in (c.receive() for _ in range(4))}
        assert set(got) == {"send_receipt", "send_error", "close_producer", "message"}
        assert got["send_error"].command.sequence_id == 1
        assert pb.ServerError.Name(got["send_error"].command.error) == "MetadataError"
        assert (got["message"].metadata, got["message"].payload) == (encrypted(0), secret)
        c.expect_quiet()
