"""The subscription types by their number on the wire: the only place that lists them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from magnetar.broker.subscriptions.types.exclusive import ExclusiveType
from magnetar.broker.subscriptions.types.failover import FailoverType
from magnetar.broker.subscriptions.types.key_shared.key_shared import KeySharedType
from magnetar.broker.subscriptions.types.shared import SharedType
from magnetar.broker.subscriptions.types.subscription_type import SubscriptionType, SubType
from magnetar.common.errors import NotAllowed

TYPES: Final[Mapping[SubType.ValueType, SubscriptionType[Any]]] = {
    each.sub_type: each for each in (ExclusiveType(), SharedType(), FailoverType(), KeySharedType())
}


def check_allowed(sub_type: SubType.ValueType, allowed: Collection[str]) -> None:
    """Checks a subscription type against `allowed`, the names of those in use. Raises NotAllowed."""
    name = TYPES[sub_type].name
    if name not in allowed:
        raise NotAllowed(
            f"subscription type {name} is disabled (subscriptionTypesEnabled, subscriptionKeySharedEnable); "
            f"use one of: {', '.join(sorted(allowed)) or 'none'}"
        )
