"""Values: what every release wrote must stay readable, what a newer one writes must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.metadata.metadata_pb2 import COUNTER, TENANT, Format
from magnetar.common.metadata.values import (
    _TYPES,
    TERMINATED,
    BookieCookie,
    BookieRegistration,
    Counter,
    Decommission,
    InstanceId,
    Intent,
    Leader,
    LedgerMetadata,
    LedgerRef,
    Namespace,
    PartitionedTopic,
    Policies,
    SchemaRecord,
    Tenant,
    TopicHead,
    TopicLedger,
    TopicPolicies,
    UnderReplicated,
    Value,
    decode,
    encode,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "metadata" / "v1"
"""Written once by version 1 (`encode` of the values below), never regenerated."""

VALUES: dict[str, Value] = {
    "instance-id": InstanceId(uuid=bytes(range(16)), created_ms=1_600_000_000_000),
    "tenant": Tenant(admin_roles=["ops", "dev"], allowed_clusters=["eu"], created_ms=1_600_000_000_001),
    "namespace": Namespace(bundle_count=4, created_ms=1_600_000_000_002),
    "partitioned-topic": PartitionedTopic(partitions=3, properties={"a": "1"}, created_ms=1_600_000_000_003),
    "namespace-policies": Namespace(
        bundle_count=4,
        created_ms=1_600_000_000_026,
        policies=Policies(
            retention=Policies.Retention(time_min=-1, size_mb=-1),
            message_ttl_s=0,
            size_quota=Policies.BacklogQuota(limit_bytes=2**40, policy=Policies.CONSUMER_BACKLOG_EVICTION),
            deduplication=False,
            auto_topic_creation=Policies.AutoTopicCreation(allowed=True, partitioned=True, partitions=3),
            subscription_types=Policies.SubscriptionTypes(names=["Shared"]),
        ),
        properties={"team": "orders"},
    ),
    "topic-policies": TopicPolicies(
        policies=Policies(
            dispatch_rate=Policies.Rate(
                messages=100, byte_count=-1, period_s=2, relative_to_publish_rate=True
            ),
            subscribe_rate=Policies.SubscribeRate(per_consumer=3, period_s=30),
            delayed_delivery=Policies.DelayedDelivery(active=True, tick_ms=100, max_delay_ms=3_600_000),
            inactive_topics=Policies.InactiveTopics(
                mode=Policies.DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP, inactive_s=60, delete=True
            ),
            persistence=Policies.Persistence(ensemble=3, write_quorum=3, ack_quorum=2, mark_delete_rate=0.5),
            dispatch_rate_of_subscription={"slow": Policies.Rate(messages=1)},
        ),
    ),
    "counter": Counter(next=2**40),
    "topic-head": TopicHead(
        owner_epoch=7,
        creation_id=11,
        open_ledgers=[LedgerRef(id=20, key=2**63 + 1), LedgerRef(id=21, key=5)],
        cursor_ledger=LedgerRef(id=19, key=6),
        first_ledger_id=12,
        topic_epoch=2,
        properties={"team": "orders", "empty": ""},
        created_ms=1_600_000_000_004,
    ),
    "topic-head-idle": TopicHead(owner_epoch=1, creation_id=12, created_ms=1_600_000_000_005),
    "topic-head-terminated": TopicHead(
        format=Format(incompatible_features=TERMINATED),
        owner_epoch=3,
        creation_id=13,
        created_ms=1_600_000_000_027,
        terminated=TopicHead.Termination(last_ledger_id=40, last_entry_id=-1),
    ),
    "topic-ledger": TopicLedger(
        ref=LedgerRef(id=12, key=9),
        first_entry_id=0,
        last_entry_id=49_999,
        entries=50_000,
        messages=1_000_000,
        byte_length=2**33,
        first_index=123_456_789,
        opened_ms=1_600_000_000_006,
        closed_ms=1_600_000_000_007,
        max_publish_time_ms=1_600_000_000_007,
    ),
    "topic-ledger-empty": TopicLedger(ref=LedgerRef(id=13, key=9), last_entry_id=-1),
    "ledger-metadata": LedgerMetadata(
        ref=LedgerRef(id=12, key=9),
        state=LedgerMetadata.CLOSED,
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=[
            LedgerMetadata.Fragment(first_entry_id=0, bookie_ids=["b1", "b2", "b3"]),
            LedgerMetadata.Fragment(first_entry_id=100, bookie_ids=["b1", "b4", "b3"]),
        ],
        last_entry_id=49_999,
        byte_length=2**33,
        properties={"topic": "persistent://public/default/t"},
        created_ms=1_600_000_000_008,
        closed_ms=1_600_000_000_009,
    ),
    "schema-record": SchemaRecord(
        version=1,
        name="orders",
        type=2,
        data=b'{"type":"string"}',
        properties={"p": "q"},
        created_ms=1_600_000_000_010,
    ),
    "intent-delete-ledger": Intent(
        id="delete-ledger-12",
        delete_ledger=Intent.DeleteLedger(ref=LedgerRef(id=12, key=9), topic_ledger_key="/magnetar/x"),
        created_ms=1_600_000_000_011,
    ),
    "intent-delete-topic": Intent(
        id="delete-topic-11",
        delete_topic=Intent.DeleteTopic(
            name="persistent://public/default/t", creation_id=11, ledgers=[LedgerRef(id=20, key=2**63 + 1)]
        ),
        created_ms=1_600_000_000_012,
    ),
    "bookie-cookie": BookieCookie(
        bookie_id="bookie-1", directory_id=bytes(range(16)), created_ms=1_600_000_000_020
    ),
    "bookie-registration": BookieRegistration(
        bookie_id="bookie-1",
        address="10.0.0.7:3181",
        rack="/eu/a",
        read_only=True,
        protocol_version=1,
        free_bytes=2**40,
        started_ms=1_600_000_000_021,
    ),
    "under-replicated": UnderReplicated(
        ref=LedgerRef(id=12, key=9), missing_bookie_ids=["bookie-1"], created_ms=1_600_000_000_022
    ),
    "leader": Leader(id="bookie-2", epoch=3, address="10.0.0.8:3181", since_ms=1_600_000_000_023),
    "decommission": Decommission(
        bookie_id="bookie-3", created_ms=1_600_000_000_024, ledgers=7, audited_ms=1_600_000_000_025
    ),
    "ledger-metadata-gaps": LedgerMetadata(
        ref=LedgerRef(id=13, key=9),
        state=LedgerMetadata.OPEN,
        gaps=[LedgerMetadata.Gap(bookie_id="bookie-3", first_entry_id=4, last_entry_id=9)],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_version_1_keep_decoding(name: str) -> None:
    expected: Any = VALUES[name]
    stored = (GOLDEN / f"{name}.bin").read_bytes()
    encode(expected)  # stamps the header
    assert decode(type(expected), stored) == expected
    assert encode(expected) == stored


def test_every_kind_of_value_has_a_golden_file() -> None:
    assert {type(value) for value in VALUES.values()} == set(_TYPES)
    assert {path.stem for path in GOLDEN.iterdir()} == set(VALUES)


@pytest.mark.parametrize("kind", _TYPES)
def test_every_value_begins_with_its_own_type_and_version(kind: type[Any]) -> None:
    data = encode(kind())
    assert data == bytes([0x0A, 4, 0x08, _TYPES[kind], 0x10, 1])


@pytest.mark.parametrize(
    "header",
    [Format(type=COUNTER, version=2), Format(type=COUNTER, version=1, incompatible_features=1 << 40)],
)
def test_a_newer_version_or_an_unknown_bit_is_refused(header: Format) -> None:
    data = Counter(format=header, next=3).SerializeToString()
    with pytest.raises(UnsupportedFormat, match="Run the release that wrote it"):
        decode(Counter, data)


def test_a_newer_layout_that_does_not_even_parse_is_called_newer() -> None:
    data = Tenant(format=Format(type=TENANT, version=9)).SerializeToString() + b"\x12\x01\xff"
    with pytest.raises(UnsupportedFormat):
        decode(Tenant, data)


@pytest.mark.parametrize("data", [b"", b"\x0a\x02\x08\x05", b"\xff\xff\xff", b"\x10\x03"])
def test_bytes_that_are_no_value_are_corruption(data: bytes) -> None:
    with pytest.raises(DataCorruption):
        decode(Counter, data)


def test_a_value_of_another_kind_is_corruption() -> None:
    with pytest.raises(DataCorruption, match="no Tenant"):
        decode(Tenant, encode(Counter(next=1)))


def test_a_damaged_value_of_this_version_is_corruption() -> None:
    data = encode(Tenant(admin_roles=["x"]))
    with pytest.raises(DataCorruption):
        decode(Tenant, data[:-1])


def test_a_field_that_this_release_does_not_know_survives_a_rewrite() -> None:
    data = encode(Counter(next=1)) + b"\xfa\x07\x03new"
    assert b"\xfa\x07\x03new" in encode(decode(Counter, data))
