"""Which strategy holds for a topic, who may add schemas, and where they are enforced."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.policies.schema_policies import resolve_schemas, rules_of_system_topics
from magnetar.broker.schemas.config import CHECKERS, SchemaConfig, schema_problems
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.common.admin_types.policies import AUTO_UPDATE_COMPATIBILITIES, SCHEMA_COMPATIBILITIES
from magnetar.common.metadata.values import Policies
from magnetar.common.schemas.rules import Strategy

NOTHING = Policies()
OLD_ALWAYS = Policies(schema_auto_update_compatibility="AlwaysCompatible")


@pytest.mark.parametrize(
    ("topic", "namespace", "broker", "expected"),
    [
        ("", NOTHING, "FULL", "FULL"),
        ("", NOTHING, "UNDEFINED", "FULL"),
        ("", NOTHING, "BACKWARD", "BACKWARD"),
        ("", OLD_ALWAYS, "BACKWARD", "ALWAYS_COMPATIBLE"),
        ("", Policies(schema_compatibility="FORWARD"), "BACKWARD", "FORWARD"),
        (
            "",
            Policies(schema_compatibility="FORWARD", schema_auto_update_compatibility="Full"),
            "BACKWARD",
            "FORWARD",
        ),
        (
            "",
            Policies(schema_compatibility="UNDEFINED", schema_auto_update_compatibility="Backward"),
            "FULL",
            "BACKWARD",
        ),
        ("FULL_TRANSITIVE", Policies(schema_compatibility="FORWARD"), "BACKWARD", "FULL_TRANSITIVE"),
        ("UNDEFINED", Policies(schema_compatibility="FORWARD"), "BACKWARD", "FORWARD"),
        ("UNDEFINED", Policies(schema_compatibility="UNDEFINED"), "BACKWARD", "BACKWARD"),
    ],
)
def test_the_strategy_is_the_topics_the_namespaces_or_the_brokers(
    topic: str, namespace: Policies, broker: str, expected: str
) -> None:
    own = Policies(schema_compatibility=topic) if topic else NOTHING
    found = resolve_schemas(SchemaConfig(compatibility=broker), namespace, own)
    assert found == SchemaRules(Strategy[expected])


def test_every_value_of_both_policies_is_a_strategy() -> None:
    def resolved(**policy: Any) -> Strategy:
        return resolve_schemas(SchemaConfig(), Policies(**policy), NOTHING).strategy

    for name in SCHEMA_COMPATIBILITIES[1:]:
        assert resolved(schema_compatibility=name) == name
    old = [resolved(schema_auto_update_compatibility=name) for name in AUTO_UPDATE_COMPATIBILITIES]
    assert len(set(old)) == len(AUTO_UPDATE_COMPATIBILITIES)
    assert old[0] is Strategy.ALWAYS_INCOMPATIBLE


@pytest.mark.parametrize(
    ("namespace", "broker", "expected"),
    [
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (False, True, False),
    ],
)
def test_clients_may_add_schemas_where_the_namespace_or_else_the_broker_says_so(
    namespace: bool | None, broker: bool, expected: bool
) -> None:
    policies = Policies(schema_auto_update=namespace)
    assert resolve_schemas(SchemaConfig(auto_update=broker), policies, NOTHING).may_update is expected


@pytest.mark.parametrize("level", ["topic", "namespace", "broker", ""])
def test_schemas_are_enforced_where_any_level_says_so(level: str) -> None:
    def policies(name: str) -> Policies:
        return Policies(schema_validation_enforced=level == name)

    config = SchemaConfig(validation_enforced=level == "broker")
    found = resolve_schemas(config, policies("namespace"), policies("topic"))
    assert found.enforced is bool(level)


def test_system_topics_have_rules_of_their_own() -> None:
    config = SchemaConfig(auto_update=False, validation_enforced=True, compatibility="FORWARD")
    assert rules_of_system_topics(config) == SchemaRules(Strategy.ALWAYS_COMPATIBLE)
    config = SchemaConfig(system_compatibility="BACKWARD")
    assert rules_of_system_topics(config) == SchemaRules(Strategy.BACKWARD)


def test_checkers_of_built_in_rules_cannot_be_left_out() -> None:
    assert schema_problems(SchemaConfig()) == []
    (problem,) = schema_problems(SchemaConfig(checkers=CHECKERS[:2]))
    assert "ProtobufNativeSchemaCompatibilityCheck" in problem
