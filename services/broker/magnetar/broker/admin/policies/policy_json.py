"""Converts policies between JSON and metadata values, and validates them.

A `Kind` is a shape of value (a number, a rate, a quota ...), independent of the fields that use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from magnetar.broker.admin.edge.json_types import INT32_MAX, INT64_MAX
from magnetar.broker.policies.config import SUBSCRIPTION_TYPES
from magnetar.common.metadata.values import Policies


class BadPolicy(Exception):
    """An invalid policy value, with the reason and the HTTP status."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class Kind(Protocol):
    """One shape of value."""

    @property
    def type_name(self) -> str:
        """The name of the type in the API reference."""
        ...

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        """Sets a field of `policies` to a JSON value. Raises BadPolicy."""
        ...

    def get(self, policies: Policies, field: str) -> Any:
        """Returns the JSON value of a field that is set."""
        ...


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number of at least `minimum`; a lower one gets 412, as in Pulsar."""

    minimum: int = 0
    below: str = "{name} must be {minimum} or more"
    type_name: str = "int"
    maximum: int = INT32_MAX

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        number = whole_number(rest_name, value, self.maximum)
        if number < self.minimum:
            raise BadPolicy(self.below.format(name=rest_name, minimum=self.minimum), 412)
        setattr(policies, field, number)

    def get(self, policies: Policies, field: str) -> Any:
        return getattr(policies, field)


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean."""

    type_name: str = "boolean"

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        setattr(policies, field, boolean(rest_name, value))

    def get(self, policies: Policies, field: str) -> Any:
        return getattr(policies, field)


@dataclass(frozen=True, slots=True)
class WrappedFlag:
    """A boolean in an object, under its own member name."""

    key: str
    type_name: str

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        setattr(policies, field, boolean(self.key, json_object(rest_name, value).get(self.key, False)))

    def get(self, policies: Policies, field: str) -> Any:
        return {self.key: getattr(policies, field)}


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several words."""

    choices: tuple[str, ...]
    type_name: str
    nothing: str = ""
    """The word that means that the policy is not set."""

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        # Pulsar's Go client sends an empty string for unset members of a namespace's policies.
        word = self.nothing if value == "" else one_of(*self.choices)(rest_name, value)
        if word == self.nothing:
            policies.ClearField(field)  # type: ignore[arg-type]
        else:
            setattr(policies, field, word)

    def get(self, policies: Policies, field: str) -> Any:
        return getattr(policies, field)


@dataclass(frozen=True, slots=True)
class TypeNames:
    """A set of subscription types."""

    type_name: str = "Set<SubscriptionType>"

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        if not isinstance(value, list):
            raise BadPolicy(f"{rest_name} must be a list of {', '.join(SUBSCRIPTION_TYPES)}")
        unknown = [name for name in value if name not in SUBSCRIPTION_TYPES]
        if unknown:
            raise BadPolicy(f"{unknown[0]!r} is not one of {', '.join(SUBSCRIPTION_TYPES)}")
        policies.ClearField(field)  # type: ignore[arg-type]
        if not value:
            return  # an empty list means all types
        message = getattr(policies, field)
        message.names.extend(name for name in SUBSCRIPTION_TYPES if name in value)

    def get(self, policies: Policies, field: str) -> Any:
        return list(getattr(policies, field).names)


@dataclass(frozen=True, slots=True)
class Part:
    """One member of an object."""

    key: str
    proto: str
    read: Callable[[str, Any], Any]
    default: Any
    show: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class Record:
    """Checks an object; missing and null members get their defaults, unknown members are ignored."""

    type_name: str
    parts: tuple[Part, ...]
    check: Callable[[Mapping[str, Any]], None] = lambda value: None

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        given = json_object(rest_name, value)
        read: dict[str, Any] = {}
        for part in self.parts:
            item = given.get(part.key)
            read[part.key] = part.default if item is None else part.read(part.key, item)
        self.check(read)
        message = getattr(policies, field)
        message.Clear()
        message.SetInParent()
        for part in self.parts:
            setattr(message, part.proto, read[part.key])

    def get(self, policies: Policies, field: str) -> Any:
        message = getattr(policies, field)
        return {part.key: part.show(getattr(message, part.proto)) for part in self.parts}


def whole_number(name: str, value: Any, maximum: int = INT64_MAX) -> int:
    """Validates a whole number within `maximum`. Raises BadPolicy."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadPolicy(f"{name} must be a whole number, not {_shown(value)}")
    if not -maximum - 1 <= value <= maximum:
        raise BadPolicy(f"{name} is out of range: {value}")
    return value


def int32(name: str, value: Any) -> int:
    return whole_number(name, value, INT32_MAX)


def boolean(name: str, value: Any) -> bool:
    """Validates a boolean. Raises BadPolicy."""
    if not isinstance(value, bool):
        raise BadPolicy(f"{name} must be true or false, not {_shown(value)}")
    return value


def json_object(name: str, value: Any) -> dict[str, Any]:
    """Validates an object. Raises BadPolicy."""
    if not isinstance(value, dict):
        raise BadPolicy(f"{name} must be an object, not {_shown(value)}")
    return value


def decimal(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadPolicy(f"{name} must be a number, not {_shown(value)}")
    try:
        return float(value)
    except OverflowError as error:
        raise BadPolicy(f"{name} is out of range: {_shown(value)}") from error


def one_of(*choices: str) -> Callable[[str, Any], str]:
    """Returns a parser that accepts one of these strings."""

    def read(name: str, value: Any) -> str:
        if value not in choices:
            raise BadPolicy(f"{name} must be one of {', '.join(choices)}, not {_shown(value)}")
        return str(value)

    return read


def _shown(value: Any) -> str:
    return repr(value)[:80]


# -- objects


def _check_retention(value: Mapping[str, Any]) -> None:
    time_min, size_mb = value["retentionTimeInMinutes"], value["retentionSizeInMB"]
    if time_min < -1 or size_mb < -1:
        raise BadPolicy("Invalid retention policy: a limit is -1 (infinite), 0 (none) or more")
    if (time_min == 0) != (size_mb == 0):
        raise BadPolicy(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the "
            "limits has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. "
            "To disable retention both limits must be set to 0."
        )


def _check_persistence(value: Mapping[str, Any]) -> None:
    ensemble, write, ack = (value[f"bookkeeper{name}"] for name in ("Ensemble", "WriteQuorum", "AckQuorum"))
    for name, number in (("Ensemble", ensemble), ("WriteQuorum", write), ("AckQuorum", ack)):
        if not 0 < number <= 5:
            raise BadPolicy(f"Bookkeeper-{name} must be <= 5 and > 0.")
    if not ensemble >= write >= ack:
        raise BadPolicy(f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})")
    if not 0 <= value["managedLedgerMaxMarkDeleteRate"] < float("inf"):
        raise BadPolicy("managedLedgerMaxMarkDeleteRate must be 0 or more")


RETENTION: Final = Record(
    "RetentionPolicies",
    (
        Part("retentionTimeInMinutes", "time_min", int32, 0),
        Part("retentionSizeInMB", "size_mb", whole_number, 0),
    ),
    _check_retention,
)


def _check_rate(value: Mapping[str, Any]) -> None:
    if value["ratePeriodInSecond"] < 0:
        raise BadPolicy("ratePeriodInSecond must be 0 or more; 0 is 1")


RATE: Final = Record(
    "DispatchRate",
    (
        Part("dispatchThrottlingRateInMsg", "messages", int32, 0),
        Part("dispatchThrottlingRateInByte", "byte_count", whole_number, 0),
        Part("relativeToPublishRate", "relative_to_publish_rate", boolean, False),
        Part("ratePeriodInSecond", "period_s", int32, 0),
    ),
    _check_rate,
)

PUBLISH_RATE: Final = Record(
    "PublishRate",
    (
        Part("publishThrottlingRateInMsg", "messages", int32, -1),
        Part("publishThrottlingRateInByte", "byte_count", whole_number, -1),
    ),
)


def _check_subscribe_rate(value: Mapping[str, Any]) -> None:
    if value["ratePeriodInSecond"] <= 0:
        raise BadPolicy("ratePeriodInSecond must be more than 0")


SUBSCRIBE_RATE: Final = Record(
    "SubscribeRate",
    (
        Part("subscribeThrottlingRatePerConsumer", "per_consumer", int32, -1),
        Part("ratePeriodInSecond", "period_s", int32, 30),
    ),
    _check_subscribe_rate,
)


def _check_inactive(value: Mapping[str, Any]) -> None:
    if value["maxInactiveDurationSeconds"] < 0:
        raise BadPolicy("maxInactiveDurationSeconds must be 0 or more")


_INACTIVE_MODES: Final = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")

INACTIVE_TOPICS: Final = Record(
    "InactiveTopicPolicies",
    (
        Part(
            "inactiveTopicDeleteMode",
            "mode",
            lambda name, value: Policies.InactiveMode.Value(one_of(*_INACTIVE_MODES)(name, value).upper()),
            Policies.DELETE_WHEN_NO_SUBSCRIPTIONS,
            lambda mode: Policies.InactiveMode.Name(mode).lower(),
        ),
        Part("maxInactiveDurationSeconds", "inactive_s", int32, 0),
        Part("deleteWhileInactive", "delete", boolean, False),
    ),
    _check_inactive,
)


def _check_delayed(value: Mapping[str, Any]) -> None:
    if value["tickTime"] < 0 or value["maxDeliveryDelayInMillis"] < 0:
        raise BadPolicy("tickTime and maxDeliveryDelayInMillis must be 0 or more")


DELAYED_DELIVERY: Final = Record(
    "DelayedDeliveryPolicies",
    (
        Part("tickTime", "tick_ms", whole_number, 0),
        Part("active", "active", boolean, False),
        Part("maxDeliveryDelayInMillis", "max_delay_ms", whole_number, 0),
    ),
    _check_delayed,
)

PERSISTENCE: Final = Record(
    "PersistencePolicies",
    (
        Part("bookkeeperEnsemble", "ensemble", int32, 2),
        Part("bookkeeperWriteQuorum", "write_quorum", int32, 2),
        Part("bookkeeperAckQuorum", "ack_quorum", int32, 2),
        Part("managedLedgerMaxMarkDeleteRate", "mark_delete_rate", decimal, 0.0),
    ),
    _check_persistence,
)
