"""Policies of schemas resolved: which strategy holds for a topic, and who may add schemas."""

from __future__ import annotations

from typing import Final

from magnetar.broker.schemas.config import SchemaConfig
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.common.metadata.values import Policies
from magnetar.common.schemas.rules import Strategy

_OF_AUTO_UPDATE: Final = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
"""Strategies by the value of the older policy schemaAutoUpdateCompatibilityStrategy."""


def resolve_schemas(config: SchemaConfig, namespace: Policies, topic: Policies) -> SchemaRules:
    """Resolves the rules of a topic from its own policies, its namespace's and the configuration."""
    may_update = config.auto_update
    if namespace.HasField("schema_auto_update"):
        may_update = namespace.schema_auto_update
    return SchemaRules(
        strategy=_strategy(config, namespace, topic),
        may_update=may_update,
        enforced=(
            topic.schema_validation_enforced
            or namespace.schema_validation_enforced
            or config.validation_enforced
        ),
    )


def rules_of_system_topics(config: SchemaConfig) -> SchemaRules:
    """Returns the rules of system topics, which no policy changes."""
    return SchemaRules(strategy=_named(config.system_compatibility), may_update=True, enforced=False)


def _strategy(config: SchemaConfig, namespace: Policies, topic: Policies) -> Strategy:
    for level in (topic, namespace):
        if level.schema_compatibility not in ("", Strategy.UNDEFINED.name):
            return Strategy[level.schema_compatibility]
    if namespace.schema_auto_update_compatibility:
        return _OF_AUTO_UPDATE[namespace.schema_auto_update_compatibility]
    return _named(config.compatibility)


def _named(name: str) -> Strategy:
    """Returns a strategy of the configuration, where UNDEFINED is FULL, as in Pulsar."""
    return Strategy.FULL if name == Strategy.UNDEFINED.name else Strategy[name]
