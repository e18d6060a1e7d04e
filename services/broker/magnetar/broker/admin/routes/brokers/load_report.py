"""A broker's load in the format of Pulsar's load report and of its older list of metrics.

Figures that this broker does not have are 0; those of a Java virtual machine are omitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from importlib.metadata import version
from typing import Any, Final, TypeAlias

from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.routes.brokers.topic_bundles import Bundles
from magnetar.broker.load.process_usage import CpuMeter, machine_bytes, resident_bytes
from magnetar.broker.metrics.views import TopicView
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

MB: Final = 1024 * 1024


_CPU: Final = CpuMeter()


@dataclass(slots=True)
class Load:
    """Summed figures of several topics."""

    message_rate_in: float = 0.0
    byte_rate_in: float = 0.0
    message_rate_out: float = 0.0
    byte_rate_out: float = 0.0
    consumers: int = 0
    producers: int = 0
    topics: int = 0
    subscriptions: int = 0
    backlog: int = 0
    storage_bytes: int = 0

    def add_topic(self, topic: TopicView) -> None:
        stats, subscriptions = topic.stats, topic.subscriptions.values()
        self.message_rate_in += stats.message_rate_in
        self.byte_rate_in += stats.byte_rate_in
        self.message_rate_out += stats.message_rate_out
        self.byte_rate_out += stats.byte_rate_out
        self.consumers += sum(each.consumer_count for each in subscriptions)
        self.producers += topic.producer_count
        self.topics += 1
        self.subscriptions += len(subscriptions)
        self.backlog += sum(each.backlog() for each in subscriptions)
        self.storage_bytes += topic.storage_bytes

    @staticmethod
    def sum_of(loads: Iterable[Load]) -> Load:
        total = Load()
        for load in loads:
            for field in fields(Load):
                setattr(total, field.name, getattr(total, field.name) + getattr(load, field.name))
        return total


Loads: TypeAlias = dict[NamespaceName, dict[str, Load]]
"""Loads by namespace and bundle."""


async def loads_of(bundles: Bundles) -> Loads:
    """Sums the traffic of each bundle."""
    found: dict[NamespaceName, dict[str, Load]] = {}
    for namespace, parts in bundles.items():
        of_namespace = found[namespace] = {}
        for bundle, topics in parts.items():
            load = of_namespace[bundle] = Load()
            async for topic in iterate_cooperatively(topics):
                load.add_topic(topic)
    return found


def load_report(broker: BrokerView, loads: Loads) -> dict[str, Any]:
    """Builds Pulsar's LocalBrokerData."""
    by_bundle = {
        f"{namespace}/{bundle}": load for namespace, parts in loads.items() for bundle, load in parts.items()
    }
    total = Load.sum_of(by_bundle.values())
    cpu, cpus = _CPU.percent(), os.cpu_count() or 1
    memory = resident_bytes() / MB
    memory_max = machine_bytes() / MB
    return {
        "webServiceUrl": broker.urls.http_url,
        **({"webServiceUrlTls": broker.urls.http_url_tls} if broker.urls.http_url_tls else {}),
        "pulsarServiceUrl": broker.urls.broker_url,
        **({"pulsarServiceUrlTls": broker.urls.broker_url_tls} if broker.urls.broker_url_tls else {}),
        "persistentTopicsEnabled": broker.config.topics.persistent_enabled,
        "nonPersistentTopicsEnabled": broker.config.topics.non_persistent_enabled,
        "cpu": {"usage": cpu, "limit": 100.0 * cpus},
        "memory": {"usage": memory, "limit": memory_max},
        "directMemory": {
            "usage": broker.ledgers.cache.bytes / MB,
            "limit": float(broker.config.memory.budget_megabytes),
        },
        "bandwidthIn": {"usage": 0.0, "limit": 0.0},
        "bandwidthOut": {"usage": 0.0, "limit": 0.0},
        **_rates(total),
        "lastUpdate": broker.ledgers.clock.wall_ms(),
        "lastStats": {bundle: _bundle(load) for bundle, load in by_bundle.items()},
        "numTopics": total.topics,
        "numBundles": len(by_bundle),
        "numConsumers": total.consumers,
        "numProducers": total.producers,
        "bundles": list(by_bundle),
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": version("magnetar-broker"),
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": "",
        "startTimestamp": broker.started_ms,
        "maxResourceUsage": max(cpu / (100.0 * cpus), memory / memory_max),
        "loadReportType": "LocalBrokerData",
    }


def _rates(load: Load) -> dict[str, float]:
    return {
        "msgThroughputIn": load.byte_rate_in,
        "msgThroughputOut": load.byte_rate_out,
        "msgRateIn": load.message_rate_in,
        "msgRateOut": load.message_rate_out,
    }


def _bundle(load: Load) -> dict[str, Any]:
    return {
        **_rates(load),
        "consumerCount": load.consumers,
        "producerCount": load.producers,
        "topics": load.topics,
        "cacheSize": 0,
    }


def metrics(broker: BrokerView, loads: Loads) -> list[dict[str, Any]]:
    """Builds Pulsar's List<Metrics>: the cache, this broker, and each namespace."""
    of_broker = {"broker": broker.config.listener.advertised_address, "cluster": broker.config.cluster_name}
    of_cache = {"brk_ml_cache_used_size": broker.ledgers.cache.bytes, "brk_ml_count": len(broker.topics)}
    of_connections = {
        "brk_active_connections": broker.connections,
        "brk_connection_created_total_count": broker.connections_accepted,
        "brk_connection_closed_total_count": broker.connections_accepted - broker.connections,
    }
    return [
        {"metrics": of_cache, "dimensions": {}},
        {
            "metrics": {"brk_health": 1 if broker.not_ready is None else -1},
            "dimensions": {**of_broker, "metric": "broker_health"},
        },
        {"metrics": of_connections, "dimensions": {**of_broker, "metric": "broker_connection"}},
        *(
            {"metrics": _namespace(Load.sum_of(parts.values())), "dimensions": {"namespace": str(name)}}
            for name, parts in loads.items()
        ),
    ]


def _namespace(load: Load) -> dict[str, Any]:
    return {
        "brk_in_rate": load.message_rate_in,
        "brk_in_tp_rate": load.byte_rate_in,
        "brk_out_rate": load.message_rate_out,
        "brk_out_tp_rate": load.byte_rate_out,
        "brk_msg_backlog": float(load.backlog),
        "brk_no_of_consumers": load.consumers,
        "brk_no_of_producers": load.producers,
        "brk_no_of_replicators": 0,
        "brk_no_of_subscriptions": load.subscriptions,
        "brk_storage_size": float(load.storage_bytes),
    }
