"""Every key in the metadata store: how it is made, and how a key is read back.

All keys stand under `/magnetar/<cluster>/v1/`. Names are percent-encoded, so that any name is one path part;
ids are decimal, zero-padded to 20 digits, so that the order of keys is the order of numbers. Prefixes end in
'/'. docs/metadata-keys.md says what each key holds and who writes it.
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
    """A name as one path part."""
    return quote(name, safe="")


def encode_id(number: int) -> str:
    """An id as a path part that sorts by number."""
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
        """A cluster that is known to this one."""
        return f"{self.clusters_prefix}{encode_name(cluster)}"

    def cluster_of(self, key: str) -> str:
        """The cluster of a cluster key."""
        return unquote(self._parts("clusters", key, 1)[0])

    def tenant(self, tenant: str) -> str:
        return f"{self.tenants_prefix}{encode_name(tenant)}"

    def namespace(self, namespace: NamespaceName) -> str:
        return f"{self.namespaces_prefix(namespace.tenant)}{encode_name(namespace.namespace)}"

    def namespaces_prefix(self, tenant: str | None = None) -> str:
        """Every namespace, or those of one tenant."""
        everything = f"{self.root}namespaces/"
        return everything if tenant is None else f"{everything}{encode_name(tenant)}/"

    def tenant_of(self, key: str) -> str:
        """The tenant of a tenant key."""
        return unquote(self._parts("tenants", key, 1)[0])

    def namespace_of(self, key: str) -> NamespaceName:
        """The namespace of a namespace key."""
        return NamespaceName(*map(unquote, self._parts("namespaces", key, 2)))

    # Topics by name

    def topic_head(self, topic: TopicName) -> str:
        return self._named("topic-heads", topic)

    def topic_heads_prefix(self, domain: str | None = None, namespace: NamespaceName | None = None) -> str:
        """Heads of every topic, of one domain, or of one namespace in a domain."""
        return self._named_prefix("topic-heads", domain, namespace)

    def topic_of_head(self, key: str) -> TopicName:
        """The topic of a head key."""
        return self._topic_of("topic-heads", key)

    def partitioned_topic(self, topic: TopicName) -> str:
        return self._named("partitioned-topics", topic)

    def partitioned_topics_prefix(
        self, domain: str | None = None, namespace: NamespaceName | None = None
    ) -> str:
        """Every partitioned topic, those of one domain, or of one namespace in a domain."""
        return self._named_prefix("partitioned-topics", domain, namespace)

    def topic_of_partitioned(self, key: str) -> TopicName:
        """The topic of a partitioned-topic key."""
        return self._topic_of("partitioned-topics", key)

    # Policies; partitions share those of their partitioned topic

    def topic_policies(self, topic: TopicName) -> str:
        return self._named("topic-policies", topic.base)

    def topic_policies_prefix(self, domain: str | None = None, namespace: NamespaceName | None = None) -> str:
        """Policies of every topic, of those of one domain, or of one namespace in a domain."""
        return self._named_prefix("topic-policies", domain, namespace)

    def topic_of_policies(self, key: str) -> TopicName:
        """The topic of a topic-policies key."""
        return self._topic_of("topic-policies", key)

    # Schemas; partitions share those of their partitioned topic

    def schemas_prefix(self, topic: TopicName) -> str:
        """Every version of a topic's schema, oldest first."""
        return f"{self._named('schemas', topic.base)}/"

    def namespace_schemas_prefix(self, domain: str, namespace: NamespaceName) -> str:
        """Every version of every schema of a namespace's topics."""
        return self._named_prefix("schemas", domain, namespace)

    def schema(self, topic: TopicName, version: int) -> str:
        return f"{self.schemas_prefix(topic)}{encode_id(version)}"

    def topic_of_schema(self, key: str) -> TopicName:
        """The topic of a schema key; of a partition the partitioned topic."""
        domain, tenant, namespace, local_name, _ = map(unquote, self._parts("schemas", key, 5))
        return TopicName.of(domain, NamespaceName(tenant, namespace), local_name)

    @property
    def schemas_family_prefix(self) -> str:
        """Every version of the schemas of every topic."""
        return f"{self.root}schemas/"

    # Ledgers

    def ledger(self, ledger_id: int) -> str:
        """The ledger store's own key of a ledger."""
        return f"{self.ledgers_prefix}{encode_id(ledger_id)}"

    def ledger_id_of(self, key: str) -> int:
        """The ledger of a ledger store's key."""
        return int(self._parts("ledgers", key, 1)[0])

    def topic_ledgers_prefix(self, creation_id: int) -> str:
        """The closed ledgers of one life of a topic, in order."""
        return f"{self.topics_prefix}{encode_id(creation_id)}/ledgers/"

    def topic_ledger(self, creation_id: int, ledger_id: int) -> str:
        """The topic owner's key of a closed ledger."""
        return f"{self.topic_ledgers_prefix(creation_id)}{encode_id(ledger_id)}"

    def topic_ledger_ids_of(self, key: str) -> tuple[int, int]:
        """(creation id, ledger id) of a topic-ledger key."""
        creation_id, _, ledger_id = self._parts("topics", key, 3)
        return int(creation_id), int(ledger_id)

    def offload_location(self, location: str) -> str:
        """A place, given as a URI, that has objects of offloaded ledgers."""
        return f"{self.offload_locations_prefix}{encode_name(location)}"

    # Bookies

    def bookie(self, bookie_id: str) -> str:
        """A bookie that is up; ephemeral."""
        return f"{self.bookies_prefix}{encode_name(bookie_id)}"

    def bookie_id_of(self, key: str) -> str:
        """The bookie of a registration's key."""
        return unquote(key.removeprefix(self.bookies_prefix))

    def cookie(self, bookie_id: str) -> str:
        """A bookie's identity; stays when it is down."""
        return f"{self.cookies_prefix}{encode_name(bookie_id)}"

    def cookie_of(self, key: str) -> str:
        """The bookie of a cookie's key."""
        return unquote(key.removeprefix(self.cookies_prefix))

    def bookie_mark(self, bookie_id: str) -> str:
        """How far a bookie's log certainly got."""
        return f"{self.bookie_marks_prefix}{encode_name(bookie_id)}"

    def bookie_of_mark(self, key: str) -> str:
        """The bookie of a mark's key."""
        return unquote(key.removeprefix(self.bookie_marks_prefix))

    def bookie_rack(self, bookie_id: str) -> str:
        """Where an operator says that a bookie stands."""
        return f"{self.bookie_racks_prefix}{encode_name(bookie_id)}"

    def bookie_of_rack(self, key: str) -> str:
        """The bookie of a rack's key."""
        return unquote(key.removeprefix(self.bookie_racks_prefix))

    def under_replicated(self, ledger_id: int) -> str:
        """A ledger that lacks copies."""
        return f"{self.under_replicated_prefix}{encode_id(ledger_id)}"

    def under_replicated_of(self, key: str) -> int:
        """The ledger of an under-replication key."""
        return int(key.removeprefix(self.under_replicated_prefix))

    def replication_lock(self, ledger_id: int) -> str:
        """Which replication worker copies an under-replicated ledger; ephemeral."""
        return f"{self.replication_locks_prefix}{encode_id(ledger_id)}"

    def ledger_decision(self, ledger_id: int) -> str:
        """That an operator ended a ledger which nothing could decide."""
        return f"{self.ledger_decisions_prefix}{encode_id(ledger_id)}"

    def ledger_decision_of(self, key: str) -> int:
        """The ledger of a decision's key."""
        return int(key.removeprefix(self.ledger_decisions_prefix))

    def decommission(self, bookie_id: str) -> str:
        """An operator's wish that a bookie leaves."""
        return f"{self.decommissions_prefix}{encode_name(bookie_id)}"

    def decommission_of(self, key: str) -> str:
        """The bookie of a decommission key."""
        return unquote(key.removeprefix(self.decommissions_prefix))

    # Brokers and the bundles that they own

    def broker(self, broker_id: str) -> str:
        """A broker that is up; ephemeral."""
        return f"{self.brokers_prefix}{encode_name(broker_id)}"

    def broker_id_of(self, key: str) -> str:
        """The broker of a registration's key."""
        return unquote(key.removeprefix(self.brokers_prefix))

    def bundle_owner(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Which broker owns a bundle; ephemeral."""
        return f"{self.namespace_bundle_owners_prefix(namespace)}{bundle}"

    def namespace_bundle_owners_prefix(self, namespace: NamespaceName) -> str:
        """Every bundle of a namespace that is owned, in the order of the ring."""
        tenant, local = encode_name(namespace.tenant), encode_name(namespace.namespace)
        return f"{self.bundle_owners_prefix}{tenant}/{local}/"

    def bundle_of_owner(self, key: str) -> tuple[NamespaceName, BundleRange]:
        """The namespace and the bundle of an owner's key."""
        tenant, namespace, bundle = map(unquote, self._parts("bundle-owners", key, 3))
        return NamespaceName(tenant, namespace), BundleRange.parse(bundle)

    # Intents; their ids follow from what is deleted, so that writing one twice is the same intent

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
    """The id of the intent to delete a ledger."""
    return f"delete-ledger-{encode_id(ledger_id)}"


def delete_objects_intent_id(ledger_id: int, attempt: bytes) -> str:
    """The id of the intent to delete the objects of one attempt to offload a ledger."""
    return f"delete-objects-{encode_id(ledger_id)}-{attempt.hex()}"


def delete_topic_intent_id(creation_id: int) -> str:
    """The id of the intent to delete one life of a topic."""
    return f"delete-topic-{encode_id(creation_id)}"


def delete_namespace_intent_id(namespace: NamespaceName) -> str:
    """The id of the intent to delete a namespace."""
    return f"delete-namespace-{namespace}"


def delete_tenant_intent_id(tenant: str) -> str:
    """The id of the intent to delete a tenant with its namespaces."""
    return f"delete-tenant-{tenant}"
