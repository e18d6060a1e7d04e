"""Broker configuration of schemas, used where neither a topic nor its namespace sets a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.admin_types.policies import SCHEMA_COMPATIBILITIES
from magnetar.common.config.settings import setting

_CHECKS: Final = "org.apache.pulsar.broker.service.schema."

CHECKERS: Final = (
    f"{_CHECKS}AvroSchemaCompatibilityCheck",
    f"{_CHECKS}JsonSchemaCompatibilityCheck",
    f"{_CHECKS}ProtobufNativeSchemaCompatibilityCheck",
)
"""Names of Pulsar's checkers; each stands for the rules of its type here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """Configures which schemas are taken."""

    compatibility: str = setting(
        "FULL",
        "Compatibility that a new schema must have with the schemas of its topic; UNDEFINED is FULL.",
        key="schemaCompatibilityStrategy",
        choices=SCHEMA_COMPATIBILITIES,
    )
    system_compatibility: str = setting(
        "ALWAYS_COMPATIBLE",
        "Compatibility that a new schema of a system topic must have; UNDEFINED is FULL.",
        key="systemTopicSchemaCompatibilityStrategy",
        choices=SCHEMA_COMPATIBILITIES,
    )
    auto_update: bool = setting(
        True,
        "Let producers, and the first consumer of an unused topic, add schemas; when false, schemas are "
        "added by the admin API only. A namespace may set another value.",
        key="isAllowAutoUpdateSchemaEnabled",
    )
    validation_enforced: bool = setting(
        False,
        "Refuse producers without a schema on topics that have one; when false, a namespace or topic may "
        "still enforce it.",
        key="isSchemaValidationEnforced",
    )
    checkers: tuple[str, ...] = setting(
        CHECKERS,
        "Checkers of compatibility, by Pulsar's class names. The rules of these types are built in and apply "
        "to every topic, so the list must name all three; other classes cannot be loaded.",
        key="schemaRegistryCompatibilityCheckers",
        choices=CHECKERS,
    )


def schema_problems(config: SchemaConfig) -> list[str]:
    """Returns what is wrong with settings that are each valid."""
    missing = sorted(set(CHECKERS) - set(config.checkers))
    if not missing:
        return []
    return [
        f"schemaRegistryCompatibilityCheckers lacks {', '.join(missing)}: the rules of a type cannot be "
        "turned off; to take every schema, set schemaCompatibilityStrategy=ALWAYS_COMPATIBLE"
    ]
