"""Connections that have not authenticated are counted in all and of each address."""

from __future__ import annotations

from magnetar.common.security.unauthenticated import UnauthenticatedConnections


def test_both_limits_hold_until_connections_leave() -> None:
    counted = UnauthenticatedConnections(3, 2)
    first, second, third, fourth = object(), object(), object(), object()
    assert counted.add(first, "a")
    assert counted.add(second, "a")
    assert not counted.add(third, "a"), "over the limit of one address"
    counted.discard(third)
    assert counted.add(third, "b")
    assert not counted.add(fourth, "c"), "over the limit of all"
    for each in (first, first, fourth):
        counted.discard(each)
    assert counted.add(fourth, "a")


def test_0_is_no_limit() -> None:
    counted = UnauthenticatedConnections(0, 0)
    assert all(counted.add(object(), "a") for _ in range(5_000))
