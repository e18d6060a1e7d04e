"""Combinations of roles, as the table of Pulsar has them."""

from __future__ import annotations

import pytest
from magnetar.common.security.proxy_roles import role_problem

PROXIES = frozenset({"proxy", "other-proxy"})


@pytest.mark.parametrize(
    ("role", "original", "repeat", "is_proxy", "possible"),
    [
        ("proxy", "alice", False, True, True),
        ("proxy", None, False, True, False),
        ("proxy", " ", False, False, False),
        ("proxy", "other-proxy", False, True, False),
        ("proxy", "proxy", True, False, False),
        ("alice", None, False, False, True),
        ("alice", None, False, True, False),
        ("alice", "bob", False, False, False),
        ("alice", "alice", False, False, False),
        ("alice", "alice", True, False, True),
        ("alice", "bob", True, False, False),
    ],
)
def test_who_may_act_for_whom(
    role: str, original: str | None, repeat: bool, is_proxy: bool, possible: bool
) -> None:
    problem = role_problem(role, original, PROXIES, may_repeat=repeat, is_proxy=is_proxy)
    assert (problem is None) == possible
