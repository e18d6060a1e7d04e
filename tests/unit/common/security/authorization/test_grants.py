"""Grants compiled from policies."""

from __future__ import annotations

from magnetar.common.metadata.values import Policies
from magnetar.common.security.authorization.actions import CONSUME, PRODUCE
from magnetar.common.security.authorization.grants import NO_GRANTS, compile_grants


def test_policies_without_grants_are_the_same_object() -> None:
    assert compile_grants(Policies(message_ttl_s=3), wildcards=True) is NO_GRANTS


def test_names_with_stars_are_exact_until_wildcards_are_allowed() -> None:
    policies = Policies()
    policies.permissions["team-*"].names[:] = ["produce"]
    policies.permissions["*-reader"].names[:] = ["consume"]
    exact = compile_grants(policies, wildcards=False)
    assert exact.allow("team-*", PRODUCE)
    assert not exact.allow("team-1", PRODUCE)
    matching = compile_grants(policies, wildcards=True)
    assert matching.allow("team-1", PRODUCE)
    assert not matching.allow("team-1", CONSUME)
    assert matching.allow("a-reader", CONSUME)
    assert not matching.allow("reader-a", CONSUME)


def test_a_subscription_with_an_empty_list_of_roles_is_open() -> None:
    policies = Policies()
    policies.subscription_roles["s"].names[:] = []
    assert compile_grants(policies, wildcards=False).open_subscription("a", "s")


def test_a_subscription_with_roles_is_open_to_them_alone() -> None:
    policies = Policies()
    policies.subscription_roles["s"].names[:] = ["a", "b"]
    grants = compile_grants(policies, wildcards=False)
    assert [grants.open_subscription(role, "s") for role in ("a", "b", "ab", "c")] == [
        True,
        True,
        False,
        False,
    ]
    assert grants.open_subscription("c", "other")


def test_prefix_mode_is_a_plain_prefix_of_the_subscription() -> None:
    grants = compile_grants(Policies(subscription_auth_mode="Prefix"), wildcards=False)
    assert grants.open_subscription("a", "abc")
    assert not grants.open_subscription("a", "reader-1")
    assert compile_grants(Policies(subscription_auth_mode="None"), wildcards=False) is NO_GRANTS


def test_equal_policies_compile_to_equal_grants() -> None:
    policies = Policies()
    policies.permissions["a"].names[:] = ["consume", "produce"]
    again = Policies()
    again.permissions["a"].names[:] = ["produce", "consume"]
    assert compile_grants(policies, wildcards=False) == compile_grants(again, wildcards=False)
