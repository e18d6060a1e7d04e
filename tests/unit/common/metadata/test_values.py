"""Values: what every release wrote must stay readable, what a newer one writes must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.metadata.metadata_pb2 import COUNTER, TENANT, Format, Offload
from magnetar.common.metadata.values import (
    _TYPES,
    COMPACTED,
    LEFT_BOOKIES,
    TERMINATED,
    BookieCookie,
    BookieMark,
    BookieRack,
    BookieRegistration,
    BrokerRegistration,
    BundleOwner,
    Cluster,
    CompactedView,
    Counter,
    Decommission,
    DynamicConfiguration,
    InstanceId,
    Intent,
    Leader,
    LedgerDecision,
    LedgerMetadata,
    LedgerRef,
    Namespace,
    OffloadLocation,
    PartitionedTopic,
    Policies,
    ResourceQuota,
    Restoration,
    SchemaRecord,
    Tenant,
    TopicHead,
    TopicLedger,
    TopicPolicies,
    TransactionLogHead,
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
    "restoration": Restoration(
        state=Restoration.RECONCILED,
        id=bytes(range(16)),
        backup_ms=1_600_000_000_040,
        restored_ms=1_600_000_000_041,
        reconciled_ms=1_600_000_000_042,
        lost_from=1_000,
        lost_until=2**33,
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
    "topic-head-compacted": TopicHead(
        format=Format(incompatible_features=COMPACTED),
        owner_epoch=4,
        creation_id=14,
        created_ms=1_600_000_000_028,
    ),
    "transaction-log-head": TransactionLogHead(
        owner_epoch=5,
        log=LedgerRef(id=44, key=2**63 + 2),
        next_number_floor=3 * 2**20,
        created_ms=1_600_000_000_050,
        restored_ms=1_600_000_000_051,
    ),
    "compacted-view": CompactedView(
        horizon=CompactedView.Position(ledger_id=40, entry_id=9),
        segments=[
            CompactedView.Segment(
                ref=LedgerRef(id=31, key=5),
                first=CompactedView.Position(ledger_id=3, entry_id=0),
                last=CompactedView.Position(ledger_id=20, entry_id=7),
                entries=1_000,
                keyed=1_200,
                unkeyed=2,
                byte_length=2**33,
                stored_bytes=2**33 + 1,
                dead=2,
                dead_set=b"bitmap",
            ),
            CompactedView.Segment(
                ref=LedgerRef(id=41, key=6),
                first=CompactedView.Position(ledger_id=20, entry_id=8),
                last=CompactedView.Position(ledger_id=40, entry_id=9),
                entries=5,
                keyed=5,
                dead=3,
                dead_first_page=1,
                dead_pages=2,
            ),
        ],
        last=CompactedView.Last(position=CompactedView.Position(ledger_id=40, entry_id=9), batch_index=-1),
        dead_sets=LedgerRef(id=42, key=7),
        hash_key=bytes(range(16)),
        pending=[
            CompactedView.PendingChunks(
                group_hash=bytes(16),
                key_hash=bytes(16),
                positions=[CompactedView.Position(ledger_id=40, entry_id=8)],
            )
        ],
        runs=3,
        retain_null_key=True,
        merge_credit=2**30,
        created_ms=1_600_000_000_029,
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
    "topic-ledger-left-bookies": TopicLedger(
        format=Format(incompatible_features=LEFT_BOOKIES),
        ref=LedgerRef(id=14, key=9),
        last_entry_id=49_999,
        entries=50_000,
        byte_length=2**33,
        offload=Offload(
            state=Offload.COMPLETE,
            attempt=bytes(range(16)),
            location="s3://bucket/prefix",
            path="public/default/orders/ledger=14/attempt=000102030405060708090a0b0c0d0e0f",
            wanted_ms=1_600_000_000_030,
            begun_ms=1_600_000_000_031,
            completed_ms=1_600_000_000_032,
            rows=1_000_000,
            raw_entries=3,
            object_bytes=2**31,
            manifest_sha256=bytes(range(32)),
            failures=1,
            exact=True,
            left_bookies_ms=1_600_000_000_033,
        ),
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
    "intent-delete-objects": Intent(
        id="delete-objects-00000000000000000014-000102030405060708090a0b0c0d0e0f",
        delete_objects=Intent.DeleteObjects(location="s3://bucket/prefix", path="public/default/orders"),
        created_ms=1_600_000_000_034,
    ),
    "intent-delete-topic": Intent(
        id="delete-topic-11",
        delete_topic=Intent.DeleteTopic(
            name="persistent://public/default/t", creation_id=11, ledgers=[LedgerRef(id=20, key=2**63 + 1)]
        ),
        created_ms=1_600_000_000_012,
    ),
    "intent-delete-namespace": Intent(
        id="delete-namespace-acme/demo",
        delete_namespace=Intent.DeleteNamespace(name="acme/demo", namespace=b"as it was"),
        created_ms=1_600_000_000_013,
    ),
    "intent-delete-namespace-by-force": Intent(
        id="delete-namespace-acme/demo",
        delete_namespace=Intent.DeleteNamespace(name="acme/demo", force=True),
        created_ms=1_600_000_000_014,
    ),
    "intent-delete-tenant": Intent(
        id="delete-tenant-acme",
        delete_tenant=Intent.DeleteTenant(name="acme"),
        created_ms=1_600_000_000_015,
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
    "broker-registration": BrokerRegistration(
        broker_id="10.0.0.5:8080",
        run=2**63 + 5,
        addresses=BrokerRegistration.Addresses(
            broker_url="pulsar://10.0.0.5:6650", http_url="http://10.0.0.5:8080"
        ),
        listeners={"external": BrokerRegistration.Addresses(broker_url="pulsar://b5.example.com:6650")},
        control_address="10.0.0.5:6750",
        control_version=1,
        version="0.8.0",
        started_ms=1_600_000_000_050,
        draining=True,
    ),
    "bundle-owner": BundleOwner(broker_id="10.0.0.5:8080", run=2**63 + 5, since_ms=1_600_000_000_051),
    "under-replicated": UnderReplicated(
        ref=LedgerRef(id=12, key=9), missing_bookie_ids=["bookie-1"], created_ms=1_600_000_000_022
    ),
    "offload-location": OffloadLocation(location="s3://cold/acme", created_ms=1_600_000_000_052),
    "leader": Leader(id="bookie-2", epoch=3, address="10.0.0.8:3181", since_ms=1_600_000_000_023),
    "decommission": Decommission(
        bookie_id="bookie-3", created_ms=1_600_000_000_024, ledgers=7, audited_ms=1_600_000_000_025
    ),
    "ledger-metadata-gaps": LedgerMetadata(
        ref=LedgerRef(id=13, key=9),
        state=LedgerMetadata.OPEN,
        gaps=[LedgerMetadata.Gap(bookie_id="bookie-3", first_entry_id=4, last_entry_id=9)],
    ),
    "namespace-placement": Namespace(
        bundle_count=4,
        created_ms=1_600_000_000_030,
        replication_clusters=Namespace.Clusters(names=["eu"]),
        allowed_clusters=["eu", "us"],
        anti_affinity_group="databases",
        bookie_affinity=Namespace.BookieAffinity(primary="fast", secondary="slow"),
        resource_quotas={"0x00000000_0x40000000": ResourceQuota(message_rate_in=40, dynamic=True)},
    ),
    "namespace-split": Namespace(
        bundle_count=3, bundle_boundaries=[0x4000_0000, 0x8000_0000], created_ms=1_600_000_000_040
    ),
    "namespace-permissions": Namespace(
        bundle_count=4,
        created_ms=1_600_000_000_041,
        policies=Policies(
            permissions={"billing": Policies.Names(names=["consume", "produce"])},
            subscription_roles={"audit": Policies.Names(names=["billing", "auditors"])},
            subscription_auth_mode="Prefix",
        ),
    ),
    "topic-policies-stored": TopicPolicies(
        policies=Policies(
            permissions={"billing": Policies.Names(names=["produce"])},
            compaction_threshold_bytes=2**40,
            offload=Policies.Offload(
                driver="aws-s3", s3_bucket="cold", threshold_bytes=2**40, extra_configurations={"a": "b"}
            ),
            dispatcher_pause_on_ack_state=True,
            schema_auto_update=False,
            schema_compatibility="FULL_TRANSITIVE",
            schema_auto_update_compatibility="AlwaysCompatible",
            schema_validation_enforced=True,
            replicator_dispatch_rate=Policies.Rate(messages=5, period_s=1),
            replication_clusters=Policies.Names(names=["eu"]),
        ),
    ),
    "cluster": Cluster(
        data=Cluster.Data(
            service_url="http://us:8080",
            broker_service_url="pulsar://us:6650",
            peer_cluster_names=Namespace.Clusters(names=["eu"]),
            tls_allow_insecure_connection=True,
        ),
        created_ms=1_600_000_000_031,
        failure_domains={"rack-1": Cluster.FailureDomain(brokers=["b1:8080", "b2:8080"])},
        isolation_policies={
            "billing": Cluster.IsolationPolicy(
                namespaces=["billing/.*"],
                primary=["b1.*"],
                secondary=["b2.*"],
                parameters={"min_limit": "1", "usage_threshold": "80"},
                unload_scope="none",
            )
        },
        migration=Cluster.Migration(service_url="http://new:8080"),
    ),
    "dynamic-configuration": DynamicConfiguration(values={"maxTopicsPerNamespace": "7"}),
    "bookie-mark": BookieMark(
        bookie_id="b1:3181",
        directory_id=bytes(range(16)),
        generation=7,
        group_sequence=1 << 40,
        raised_ms=1_600_000_000_033,
        fenced_below_ledger_id=4711,
        doubt="segment 5 is missing",
        doubt_ms=1_600_000_000_034,
    ),
    "bookie-rack": BookieRack(bookie_id="b1:3181", group="default", rack="/r1", hostname="b1"),
    "ledger-decision": LedgerDecision(
        ref=LedgerRef(id=12, key=0xABCDEF0123456789),
        last_entry_id=7,
        last_confirmed=5,
        decided_by="ops@host-1",
        reason="b2 burned down",
        decided_ms=1_600_000_000_033,
        said={"b1:3181": "absent", "b2:3181": "does not answer"},
    ),
    "resource-quota": ResourceQuota(
        message_rate_in=40, message_rate_out=120, bandwidth_in=1e5, bandwidth_out=3e5, memory=80, dynamic=True
    ),
    "leader-of-brokers": Leader(
        id="b1:6650/5", epoch=4, address="b1:6650", since_ms=1_600_000_000_032, http_url="http://b1:8080"
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
