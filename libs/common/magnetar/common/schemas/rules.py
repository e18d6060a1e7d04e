"""The rules of the schema registry: what a topic does with a schema that a producer or consumer brings.

Pure functions on a schema and the topic's history. Verdicts are those of Apache Pulsar 4.0's brokers, except
where docs/schemas.md says otherwise. A check takes milliseconds for common definitions, up to a second for
a long history: run large ones outside of the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas import checkers
from magnetar.common.schemas.avro_resolution import PairBudget
from magnetar.common.schemas.checkers import Comparison
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType, type_name

Versions: TypeAlias = Sequence[tuple[int, SchemaDefinition]]
"""A topic's history, oldest version first. A definition of type NONE marks the deletion of those before."""


class Strategy(StrEnum):
    """Compatibility strategies, under Pulsar's names."""

    UNDEFINED = "UNDEFINED"
    """Not decided: ask the namespace, then the broker. A check treats it as ALWAYS_INCOMPATIBLE."""
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


_REFUSING: Final = frozenset({Strategy.ALWAYS_INCOMPATIBLE, Strategy.UNDEFINED})
_BACKWARD: Final = frozenset(
    {Strategy.BACKWARD, Strategy.FULL, Strategy.BACKWARD_TRANSITIVE, Strategy.FULL_TRANSITIVE}
)
"""Strategies under which the new schema has to read what older versions wrote."""
_FORWARD: Final = frozenset(
    {Strategy.FORWARD, Strategy.FULL, Strategy.FORWARD_TRANSITIVE, Strategy.FULL_TRANSITIVE}
)
"""Strategies under which older versions have to read what the new schema writes."""
_TRANSITIVE: Final = frozenset(
    {Strategy.BACKWARD_TRANSITIVE, Strategy.FORWARD_TRANSITIVE, Strategy.FULL_TRANSITIVE}
)


def validate(definition: SchemaDefinition) -> None:
    """Raises InvalidSchema when the data is not a definition of its type, or the type is never stored."""
    checkers.check_valid(definition)


def same(one: SchemaDefinition, other: SchemaDefinition) -> bool:
    """Whether a topic takes two definitions for one schema, and so for one version."""
    return identity(one) == identity(other)


def identity(definition: SchemaDefinition) -> bytes:
    """Returns a digest that definitions share if and only if they are the `same`."""
    return checkers.identity_of(definition)


def since_deletion(history: Versions) -> Versions:
    """Returns the versions after the last deletion."""
    for index in range(len(history) - 1, -1, -1):
        if history[index][1].type == SchemaType.NONE:
            return history[index + 1 :]
    return history


def find(definition: SchemaDefinition, history: Versions) -> int | None:
    """Returns the first version since the last deletion with the same schema; None without one."""
    wanted = identity(definition)
    return next((version for version, each in since_deletion(history) if identity(each) == wanted), None)


def check_put(new: SchemaDefinition, history: Versions, strategy: Strategy) -> None:
    """Checks a schema that a producer or an upload brings; a schema that `find` finds passes.

    Raises InvalidSchema; IncompatibleSchema when the strategy does not let it be the next version.
    """
    versions = since_deletion(history)
    if find(new, versions) is not None:
        return
    validate(new)
    if versions and strategy is not Strategy.ALWAYS_COMPATIBLE:
        _check(new, versions, strategy, strategy)


def check_subscribe(new: SchemaDefinition, history: Versions, strategy: Strategy) -> None:
    """Checks the schema of a consumer on a topic that is in use; nothing is stored for it.

    The consumer has to read the latest version, under BACKWARD_TRANSITIVE and FULL_TRANSITIVE all versions by
    the strategy's rule. The latest schema itself passes. Raises InvalidSchema; IncompatibleSchema, also when
    the topic has no schema.
    """
    versions = since_deletion(history)
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    if not versions:
        raise IncompatibleSchema(
            f"the topic is in use and has no schema (plain bytes), so a consumer with a schema of type "
            f"{type_name(new.type)} is refused under strategy {strategy}; upload a schema to the topic, or "
            "subscribe without one"
        )
    if same(new, versions[-1][1]):
        return
    validate(new)
    if strategy in _REFUSING or strategy in _TRANSITIVE - {Strategy.FORWARD_TRANSITIVE}:
        _check(new, versions, strategy, strategy)
    else:
        _check(new, versions[-1:], strategy, Strategy.BACKWARD)


def _check(new: SchemaDefinition, versions: Versions, strategy: Strategy, rule: Strategy) -> None:
    """Compares with the newest version, or from the newest back with all, by the rule of a strategy."""
    if rule in _REFUSING:
        raise IncompatibleSchema(
            f"strategy {strategy} takes no schema but those that the topic has, and this "
            f"{type_name(new.type)} schema is another one; use a schema of the topic, or set another strategy"
        )
    comparison = Comparison(PairBudget(), transitive=rule in _TRANSITIVE)
    for version, old in reversed(versions if comparison.transitive else versions[-1:]):
        _check_version(new, version, old, strategy, rule, comparison)


def _check_version(
    new: SchemaDefinition,
    version: int,
    old: SchemaDefinition,
    strategy: Strategy,
    rule: Strategy,
    comparison: Comparison,
) -> None:
    name = type_name(new.type)
    try:
        found = checkers.misfit(new, old, comparison) if rule in _BACKWARD else None
        if found is not None:
            raise IncompatibleSchema(
                f"strategy {strategy}: the new {name} schema cannot read what version {version} wrote: "
                f"{found} (reader: the new schema, writer: version {version})"
            )
        found = checkers.misfit(old, new, comparison) if rule in _FORWARD else None
        if found is not None:
            raise IncompatibleSchema(
                f"strategy {strategy}: version {version} cannot read what the new {name} schema writes: "
                f"{found} (reader: version {version}, writer: the new schema)"
            )
    except InvalidSchema as error:
        # The new schema is valid, so it is the stored one: from before definitions were validated.
        raise IncompatibleSchema(
            f"strategy {strategy}: version {version} of the topic is not a valid {name} definition: {error}; "
            "delete the topic's schema, or set strategy ALWAYS_COMPATIBLE"
        ) from None
