"""The headers of single messages, name by name those of recorded answers."""

from __future__ import annotations

import base64

from magnetar.broker.admin.routes.subscriptions.message_headers import message_headers
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.pulsar_pb2 import ZLIB, EncryptionKeys, KeyValue, MessageMetadata
from magnetar.ledger.ledger_store import RUN_TXN, Run

TIME_MS = 1_700_000_000_000


def headers(metadata: MessageMetadata, run: Run | None = None) -> dict[str, str]:
    run = run or Run([b"entry"], publish_time_ms=TIME_MS + 7, first_index=40)
    return message_headers(Position(13, 1), metadata, run)


def plain(**more: object) -> MessageMetadata:
    return MessageMetadata(producer_name="prod-1", sequence_id=1, publish_time=TIME_MS + 192, **more)  # type: ignore[arg-type]


def test_every_message_has_its_origin_and_its_place() -> None:
    assert headers(plain()) == {
        "X-Pulsar-Message-ID": "13:1",
        "X-Pulsar-PROPERTY": "{}",
        "X-Pulsar-Broker-Entry-METADATA-timestamp": "2023-11-14T22:13:20.007Z",
        "X-Pulsar-Broker-Entry-METADATA-index": "40",
        "X-Pulsar-publish-time": "2023-11-14T22:13:20.192Z",
        "X-Pulsar-Is-Encrypted": "false",
        "X-Pulsar-producer-name": "prod-1",
        "X-Pulsar-sequence-id": "1",
        "X-Pulsar-txn-uncommitted": "false",
    }


def test_keys_times_and_properties_are_shown_as_pulsar_writes_them() -> None:
    found = headers(
        plain(
            event_time=TIME_MS,
            deliver_at_time=TIME_MS + 500,
            partition_key="key0",
            ordering_key=b"\xff",
            schema_version=bytes(8),
            properties=[KeyValue(key="k1", value="v1"), KeyValue(key="k 2", value="v/2")],
        )
    )
    assert found["X-Pulsar-event-time"] == "2023-11-14T22:13:20Z"
    assert found["X-Pulsar-deliver-at-time"] == "2023-11-14T22:13:20.500Z"
    assert found["X-Pulsar-partition-key"] == "key0"
    assert found["X-Pulsar-PROPERTY"] == '{"k1":"v1","k 2":"v/2"}'
    assert found["X-Pulsar-Base64-ordering-key"] == "/w=="
    assert found["X-Pulsar-Base64-schema-version"] == base64.b64encode(bytes(8)).decode()


def test_the_size_of_a_batch_is_without_its_metadata_and_its_index_is_the_last() -> None:
    # Of a recorded batch, before the 15 bytes that another broker keeps beside each entry.
    metadata = plain(num_messages_in_batch=4, partition_key="k0")
    entry = bytes(10 + metadata.ByteSize() + 108)
    found = headers(metadata, Run([entry], first_index=0, message_counts=[4]))
    assert found["X-Pulsar-num-batch-message"] == "4"
    assert found["X-Pulsar-batch-size"] == "118"
    assert found["X-Pulsar-Broker-Entry-METADATA-index"] == "3"


def test_compression_encryption_chunks_and_replication_are_told() -> None:
    key = EncryptionKeys(key="reader", value=b"secret")
    found = headers(
        plain(
            compression=ZLIB,
            uncompressed_size=200,
            encryption_keys=[key],
            encryption_algo="AES",
            encryption_param=b"\1",
            chunk_id=1,
            num_chunks_from_msg=3,
            total_chunk_msg_size=900,
            uuid="u",
            replicated_from="west",
            replicate_to=["east", "north"],
            null_value=True,
            null_partition_key=True,
            partition_key_b64_encoded=True,
            highest_sequence_id=9,
            txnid_least_bits=1,
            txnid_most_bits=2,
            marker_type=10,
        )
    )
    shown = {name.removeprefix("X-Pulsar-"): value for name, value in found.items()}
    expected = {
        "compression": "ZLIB",
        "uncompressed-size": "200",
        "Is-Encrypted": "true",
        "encryption-algo": "AES",
        "Base64-encryption-param": "AQ==",
        "Base64-encryption-keys": base64.b64encode(key.SerializeToString()).decode(),
        "chunk-id": "1",
        "num-chunks-from-msg": "3",
        "total-chunk-msg-size": "900",
        "uuid": "u",
        "replicated-from": "west",
        "replicated-to": "east,north",
        "null-value": "true",
        "null-partition-key": "true",
        "partition-key-b64-encoded": "true",
        "highest-sequence-id": "9",
        "txnid-least-bits": "1",
        "txnid-most-bits": "2",
        "marker-type": "10",
    }
    assert expected.items() <= shown.items()


def test_nothing_that_a_producer_says_ends_a_header() -> None:
    odd = headers(MessageMetadata(producer_name="a\r\nb\0", sequence_id=0, publish_time=2**63))
    assert odd["X-Pulsar-producer-name"] == "a  b "
    assert odd["X-Pulsar-publish-time"] == str(2**63)


def test_a_message_in_a_transaction_says_whether_it_was_aborted_or_is_not_committed_yet() -> None:
    run = Run([b"entry"], publish_time_ms=TIME_MS, txn=TxnId(0, 0), flags=RUN_TXN)
    position, metadata = Position(13, 1), plain(txnid_least_bits=0, txnid_most_bits=0)
    open_ones = message_headers(position, metadata, run, uncommitted=True)
    assert open_ones["X-Pulsar-txn-uncommitted"] == "true"
    assert open_ones["X-Pulsar-txn-aborted"] == "false"
    assert open_ones["X-Pulsar-txnid-least-bits"] == open_ones["X-Pulsar-txnid-most-bits"] == "0"
    aborted = message_headers(position, metadata, run, aborted=True)
    assert (aborted["X-Pulsar-txn-uncommitted"], aborted["X-Pulsar-txn-aborted"]) == ("false", "true")
    behind = message_headers(position, plain(), Run([b"entry"]), uncommitted=True)
    assert behind["X-Pulsar-txn-uncommitted"] == "true"
    assert "X-Pulsar-txn-aborted" not in behind
