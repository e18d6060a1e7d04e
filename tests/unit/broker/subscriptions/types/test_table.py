"""The table of subscription types: complete, and consistent with what others say about types."""

from __future__ import annotations

import pytest
from magnetar.broker.policies.config import SUBSCRIPTION_TYPES
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.subscriptions.types.table import TYPES, check_allowed
from magnetar.common.errors import NotAllowed


def test_every_type_of_the_wire_is_in_the_table_under_its_own_number() -> None:
    assert set(TYPES) == set(SubType.values())
    assert all(each.sub_type == number for number, each in TYPES.items())


def test_policies_can_enable_exactly_the_types_of_the_table() -> None:
    assert {each.name for each in TYPES.values()} == set(SUBSCRIPTION_TYPES)


def test_types_without_order_take_no_cumulative_acknowledgements_and_announce_no_active_consumer() -> None:
    assert {each.name for each in TYPES.values() if each.individual} == {"Shared", "Key_Shared"}
    assert {each.name for each in TYPES.values() if each.announces_active} == {"Failover"}


def test_disabled_type_is_refused_by_name() -> None:
    check_allowed(SubType.Shared, {"Shared", "Exclusive"})
    with pytest.raises(NotAllowed, match=r"Failover is disabled.*Exclusive, Shared"):
        check_allowed(SubType.Failover, {"Shared", "Exclusive"})
