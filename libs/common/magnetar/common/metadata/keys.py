"""The keys of the metadata store: construction and parsing.

All keys are under `/magnetar/<cluster>/v1/`. Names are percent-encoded, so that any name is one path segment;
ids are decimal, zero-padded to 20 digits, so that key order is numeric order. Prefixes end in '/'.
docs/metadata-keys.md lists each key's content and writer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

ID_DIGITS: Final = 20


@lru_cache(maxsize=8192)
def encode_name(name: str) -> str:
    """Encodes a name as one path segment."""
    return quote(name, safe="")


def encode_id(number: int) -> str:
    """Encodes an id as a path segment that sorts numerically."""
    if not 0 <= number < 2**64:
        raise ValueError(f"{number} is not an unsigned 64-bit id")
    return f"{number:0{ID_DIGITS}d}"


class Keys:
    """The keys of one cluster."""

    __slots__ = (
        "auditor",
        "bookie_marks_prefix",
        "bookie_racks_prefix",
        "bookies_prefix",
        "broker_leader",
        "brokers_prefix",
        "bundle_owners_prefix",
        "clusters_prefix",
        "compacted_views_prefix",
        "cookies_prefix",
        "counters_prefix",
        "creation_id_counter",
        "decommissions_prefix",
        "default_resource_quota",
        "dynamic_configuration",
        "instance_id",
        "intents_prefix",
        "ledger_decisions_prefix",
        "ledger_id_counter",
        "ledgers_prefix",
        "offload_locations_prefix",
        "producer_name_counter",
        "replication_locks_prefix",
        "restoration",
        "root",
        "tenants_prefix",
        "topics_prefix",
        "transactions_prefix",
        "under_replicated_prefix",
    )

    def __init__(self, cluster: str) -> None:
        self.root: Final = f"/magnetar/{encode_name(cluster)}/v1/"
        self.instance_id: Final = f"{self.root}instance-id"
        self.restoration: Final = f"{self.root}restoration"
        self.tenants_prefix: Final = f"{self.root}tenants/"
        self.clusters_prefix: Final = f"{self.root}clusters/"
        self.dynamic_configuration: Final = f"{self.root}dynamic-configuration"
        self.default_resource_quota: Final = f"{self.root}default-resource-quota"
        self.topics_prefix: Final = f"{self.root}topics/"
        self.compacted_views_prefix: Final = f"{self.root}compacted-views/"
        self.transactions_prefix: Final = f"{self.root}transactions/"
        self.ledgers_prefix: Final = f"{self.root}ledgers/"
        self.intents_prefix: Final = f"{self.root}intents/"
        self.offload_locations_prefix: Final = f"{self.root}offload-locations/"
        self.bookies_prefix: Final = f"{self.root}bookies/available/"
        self.cookies_prefix: Final = f"{self.root}bookies/cookies/"
        self.bookie_marks_prefix: Final = f"{self.root}bookies/marks/"
        self.bookie_racks_prefix: Final = f"{self.root}bookies/racks/"
        self.auditor: Final = f"{self.root}bookies/auditor"
        self.under_replicated_prefix: Final = f"{self.root}bookies/under-replicated/"
        self.replication_locks_prefix: Final = f"{self.root}bookies/replication-locks/"
        self.ledger_decisions_prefix: Final = f"{self.root}bookies/ledger-decisions/"
        self.decommissions_prefix: Final = f"{self.root}bookies/decommissions/"
        self.brokers_prefix: Final = f"{self.root}brokers/available/"
        self.broker_leader: Final = f"{self.root}brokers/leader"
        self.bundle_owners_prefix: Final = f"{self.root}bundle-owners/"
        self.counters_prefix: Final = f"{self.root}counters/"
        self.ledger_id_counter: Final = f"{self.counters_prefix}ledger-id"
        self.creation_id_counter: Final = f"{self.counters_prefix}creation-id"
        self.producer_name_counter: Final = f"{self.counters_prefix}producer-name"

    # Clusters, tenants and namespaces

    def cluster(self, cluster: str) -> str:
        """Key of a registered cluster."""
        return f"{self.clusters_prefix}{encode_name(cluster)}"

    def cluster_of(self, key: str) -> str:
        """Returns the cluster of a cluster key."""
        return unquote(self._parts("clusters", key, 1)[0])

    def tenant(self, tenant: str) -> str:
        return f"{self.tenants_prefix}{encode_name(tenant)}"

    def namespace(self, namespace: NamespaceName) -> str:
        return f"{self.namespaces_prefix(namespace.tenant)}{encode_name(namespace.namespace)}"

    def namespaces_prefix(self, tenant: str | None = None) -> str:
        """Prefix of all namespaces, or of one tenant's."""
        everything = f"{self.root}namespaces/"
        return everything if tenant is None else f"{everything}{encode_name(tenant)}/"

    def tenant_of(self, key: str) -> str:
        """Returns the tenant of a tenant key."""
        return unquote(self._parts("tenants", key, 1)[0])

    def namespace_of(self, key: str) -> NamespaceName:
        """Returns the namespace of a namespace key."""
        return NamespaceName(*map(unquote, self._parts("namespaces", key, 2)))

    # Topics by name

    def topic_head(self, topic: TopicName) -> str:
        return self._named("topic-heads", topic)

    def topic_heads_prefix(self, domain: str | None = None, namespace: NamespaceName | None = None) -> str:
        """Prefix of the heads of all topics, of one domain, or of one namespace in a domain."""
        return self._named_prefix("topic-heads", domain, namespace)

    def topic_of_head(self, key: str) -> TopicName:
        """Returns the topic of a head key."""
        return self._topic_of("topic-heads", key)

    def partitioned_topic(self, topic: TopicName) -> str:
        return self._named("partitioned-topics", topic)

    def partitioned_topics_prefix(
        self, domain: str | None = None, namespace: NamespaceName | None = None
    ) -> str:
        """Prefix of all partitioned topics, of one domain, or of one namespace in a domain."""
        return self._named_prefix("partitioned-topics", domain, namespace)

    def topic_of_partitioned(self, key: str) -> TopicName:
        """Returns the topic of a partitioned-topic key."""
        return self._topic_of("partitioned-topics", key)

    # Policies; partitions share those of their partitioned topic

    def topic_policies(self, topic: TopicName) -> str:
        return self._named("topic-policies", topic.base)

    def topic_policies_prefix(self, domain: str | None = None, namespace: NamespaceName | None = None) -> str:
        """Prefix of the policies of all topics, of one domain, or of one namespace in a domain."""
        return self._named_prefix("topic-policies", domain, namespace)

    def topic_of_policies(self, key: str) -> TopicName:
        """Returns the topic of a topic-policies key."""
        return self._topic_of("topic-policies", key)

    # Schemas; partitions share those of their partitioned topic

    def schemas_prefix(self, topic: TopicName) -> str:
        """Prefix of the versions of a topic's schema, oldest first."""
        return f"{self._named('schemas', topic.base)}/"

    def namespace_schemas_prefix(self, domain: str, namespace: NamespaceName) -> str:
        """Prefix of the schema versions of a namespace's topics."""
        return self._named_prefix("schemas", domain, namespace)

    def schema(self, topic: TopicName, version: int) -> str:
        return f"{self.schemas_prefix(topic)}{encode_id(version)}"

    def topic_of_schema(self, key: str) -> TopicName:
        """Returns the topic of a schema key; for a partition, the partitioned topic."""
        domain, tenant, namespace, local_name, _ = map(unquote, self._parts("schemas", key, 5))
        return TopicName.of(domain, NamespaceName(tenant, namespace), local_name)

    @property
    def schemas_family_prefix(self) -> str:
        """Prefix of the schema versions of all topics."""
        return f"{self.root}schemas/"

    # Ledgers

    def ledger(self, ledger_id: int) -> str:
        """Key of a ledger's metadata, written by the ledger store."""
        return f"{self.ledgers_prefix}{encode_id(ledger_id)}"

    def ledger_id_of(self, key: str) -> int:
        """Returns the ledger id of a ledger key."""
        return int(self._parts("ledgers", key, 1)[0])

    def topic_ledgers_prefix(self, creation_id: int) -> str:
        """Prefix of the closed ledgers of one incarnation of a topic, in order."""
        return f"{self.topics_prefix}{encode_id(creation_id)}/ledgers/"

    def topic_ledger(self, creation_id: int, ledger_id: int) -> str:
        """Key of a closed ledger, written by the topic's owner."""
        return f"{self.topic_ledgers_prefix(creation_id)}{encode_id(ledger_id)}"

    def topic_ledger_ids_of(self, key: str) -> tuple[int, int]:
        """Returns (creation id, ledger id) of a topic-ledger key."""
        creation_id, _, ledger_id = self._parts("topics", key, 3)
        return int(creation_id), int(ledger_id)

    def compacted_view(self, creation_id: int) -> str:
        """Key of the compacted view of one incarnation of a topic, written by the topic's owner."""
        return f"{self.compacted_views_prefix}{encode_id(creation_id)}"

    def creation_id_of_view(self, key: str) -> int:
        """Returns the creation id of a compacted view's key."""
        return int(self._parts("compacted-views", key, 1)[0])

    def transaction_log_head(self, coordinator_id: int) -> str:
        """Key of a transaction coordinator's head, written by its owner."""
        return f"{self.transactions_prefix}{encode_id(coordinator_id)}"

    def coordinator_id_of(self, key: str) -> int:
        """Returns the coordinator id of a transaction log head's key."""
        return int(self._parts("transactions", key, 1)[0])

    def offload_location(self, location: str) -> str:
        """Key of a location, given as a URI, that has objects of offloaded ledgers."""
        return f"{self.offload_locations_prefix}{encode_name(location)}"

    # Bookies

    def bookie(self, bookie_id: str) -> str:
        """Key of a bookie's registration; ephemeral."""
        return f"{self.bookies_prefix}{encode_name(bookie_id)}"

    def bookie_id_of(self, key: str) -> str:
        """Returns the bookie id of a registration key."""
        return unquote(key.removeprefix(self.bookies_prefix))

    def cookie(self, bookie_id: str) -> str:
        """Key of a bookie's identity; remains while the bookie is down."""
        return f"{self.cookies_prefix}{encode_name(bookie_id)}"

    def cookie_of(self, key: str) -> str:
        """Returns the bookie id of a cookie key."""
        return unquote(key.removeprefix(self.cookies_prefix))

    def bookie_mark(self, bookie_id: str) -> str:
        """Key of a bookie's mark: the durable end of its log."""
        return f"{self.bookie_marks_prefix}{encode_name(bookie_id)}"

    def bookie_of_mark(self, key: str) -> str:
        """Returns the bookie id of a mark key."""
        return unquote(key.removeprefix(self.bookie_marks_prefix))

    def bookie_rack(self, bookie_id: str) -> str:
        """Key of the rack that an operator configured for a bookie."""
        return f"{self.bookie_racks_prefix}{encode_name(bookie_id)}"

    def bookie_of_rack(self, key: str) -> str:
        """Returns the bookie id of a rack key."""
        return unquote(key.removeprefix(self.bookie_racks_prefix))

    def under_replicated(self, ledger_id: int) -> str:
        """Key of an under-replicated ledger."""
        return f"{self.under_replicated_prefix}{encode_id(ledger_id)}"

    def under_replicated_of(self, key: str) -> int:
        """Returns the ledger id of an under-replication key."""
        return int(key.removeprefix(self.under_replicated_prefix))

    def replication_lock(self, ledger_id: int) -> str:
        """Key of the replication worker that repairs a ledger; ephemeral."""
        return f"{self.replication_locks_prefix}{encode_id(ledger_id)}"

    def ledger_decision(self, ledger_id: int) -> str:
        """Key of an operator's decision to end a ledger that recovery cannot decide."""
        return f"{self.ledger_decisions_prefix}{encode_id(ledger_id)}"

    def ledger_decision_of(self, key: str) -> int:
        """Returns the ledger id of a decision key."""
        return int(key.removeprefix(self.ledger_decisions_prefix))

    def decommission(self, bookie_id: str) -> str:
        """Key of a bookie's decommission request."""
        return f"{self.decommissions_prefix}{encode_name(bookie_id)}"

    def decommission_of(self, key: str) -> str:
        """Returns the bookie id of a decommission key."""
        return unquote(key.removeprefix(self.decommissions_prefix))

    # Brokers and their bundles

    def broker(self, broker_id: str) -> str:
        """Key of a broker's registration; ephemeral."""
        return f"{self.brokers_prefix}{encode_name(broker_id)}"

    def broker_id_of(self, key: str) -> str:
        """Returns the broker id of a registration key."""
        return unquote(key.removeprefix(self.brokers_prefix))

    def bundle_owner(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Key of a bundle's owner; ephemeral."""
        return f"{self.namespace_bundle_owners_prefix(namespace)}{bundle}"

    def namespace_bundle_owners_prefix(self, namespace: NamespaceName) -> str:
        """Prefix of the owned bundles of a namespace, in ring order."""
        tenant, local = encode_name(namespace.tenant), encode_name(namespace.namespace)
        return f"{self.bundle_owners_prefix}{tenant}/{local}/"

    def bundle_of_owner(self, key: str) -> tuple[NamespaceName, BundleRange]:
        """Returns the namespace and the bundle of an owner key."""
        tenant, namespace, bundle = map(unquote, self._parts("bundle-owners", key, 3))
        return NamespaceName(tenant, namespace), BundleRange.parse(bundle)

    # Intents; an id derives from the deleted object, so writing an intent twice is idempotent

    def intent(self, intent_id: str) -> str:
        return f"{self.intents_prefix}{encode_name(intent_id)}"

    def _named(self, family: str, topic: TopicName) -> str:
        return f"{self._named_prefix(family, topic.domain, topic.namespace)}{encode_name(topic.local_name)}"

    def _named_prefix(self, family: str, domain: str | None, namespace: NamespaceName | None) -> str:
        prefix = f"{self.root}{family}/"
        if domain is None:
            assert namespace is None, "a namespace prefix needs its domain"
            return prefix
        prefix = f"{prefix}{domain}/"
        if namespace is None:
            return prefix
        return f"{prefix}{encode_name(namespace.tenant)}/{encode_name(namespace.namespace)}/"

    def _topic_of(self, family: str, key: str) -> TopicName:
        domain, tenant, namespace, local_name = map(unquote, self._parts(family, key, 4))
        return TopicName.of(domain, NamespaceName(tenant, namespace), local_name)

    def _parts(self, family: str, key: str, count: int) -> list[str]:
        prefix = f"{self.root}{family}/"
        parts = key[len(prefix) :].split("/")
        if not key.startswith(prefix) or len(parts) != count:
            raise ValueError(f"{key!r} is not a key of {prefix}")
        return parts


def delete_ledger_intent_id(ledger_id: int) -> str:
    """Returns the id of the intent to delete a ledger."""
    return f"delete-ledger-{encode_id(ledger_id)}"


def delete_objects_intent_id(ledger_id: int, attempt: bytes) -> str:
    """Returns the id of the intent to delete the objects of one attempt to offload a ledger."""
    return f"delete-objects-{encode_id(ledger_id)}-{attempt.hex()}"


def delete_topic_intent_id(creation_id: int) -> str:
    """Returns the id of the intent to delete one incarnation of a topic."""
    return f"delete-topic-{encode_id(creation_id)}"


def delete_namespace_intent_id(namespace: NamespaceName) -> str:
    """Returns the id of the intent to delete a namespace."""
    return f"delete-namespace-{namespace}"


def delete_tenant_intent_id(tenant: str) -> str:
    """Returns the id of the intent to delete a tenant with its namespaces."""
    return f"delete-tenant-{tenant}"
