"""The decisions, against a slow model written from the rules in words."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.common.metadata.values import Policies
from magnetar.common.security.authorization.actions import CONSUME, PRODUCE
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.authorization.decisions import Decisions, Rights
from magnetar.common.security.authorization.grants import compile_grants
from magnetar.common.security.principal import Principal

from tests.examples import examples

ROLES = ("a", "ab", "b", "root", "proxy", "*", "a*", "*b", "")
SUBSCRIPTIONS = ("", "a", "ab-1", "b", "root", "other")


@dataclass(frozen=True)
class Rules:
    """Configuration and grants, as they are stored."""

    supers: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    of_namespace: dict[str, list[str]] = field(default_factory=dict)
    of_topic: dict[str, list[str]] = field(default_factory=dict)
    subscriptions: dict[str, list[str]] = field(default_factory=dict)
    mode: str = ""
    wildcards: bool = False

    def decisions(self) -> Decisions:
        return Decisions(AuthorizationConfig(enabled=True, super_user_roles=tuple(sorted(self.supers))))

    def rights(self) -> Rights:
        return Rights(
            self.admins,
            compile_grants(self._policies(self.of_namespace, whole=True), wildcards=self.wildcards),
            compile_grants(self._policies(self.of_topic, whole=False), wildcards=self.wildcards),
        )

    def _policies(self, granted: dict[str, list[str]], *, whole: bool) -> Policies:
        policies = Policies()
        for role, actions in granted.items():
            policies.permissions[role].names[:] = actions
        if whole:
            for name, roles in self.subscriptions.items():
                policies.subscription_roles[name].names[:] = roles
            if self.mode:
                policies.subscription_auth_mode = self.mode
        return policies


# The model: one question after the other, nothing compiled


def granted(rules: Rules, level: dict[str, list[str]], role: str, action: str) -> bool:
    for name, actions in level.items():
        if action not in actions:
            continue
        if name == role:
            return True
        if rules.wildcards and name.endswith("*") and role.startswith(name[:-1]):
            return True
        if rules.wildcards and name.startswith("*") and role.endswith(name[1:]):
            return True
    return False


def one_may(rules: Rules, role: str | None, action: str) -> bool:
    if role is None:
        return False
    if role in rules.supers or role in rules.admins:
        return True
    return granted(rules, rules.of_namespace, role, action) or granted(rules, rules.of_topic, role, action)


def one_consumes(rules: Rules, role: str | None, subscription: str) -> bool:
    if role is None:
        return False
    if role in rules.supers or role in rules.admins:
        return True
    if subscription:
        listed = rules.subscriptions.get(subscription, [])
        if listed and role not in listed:
            return False
        if rules.mode == "Prefix" and subscription[: len(role)] != role:
            return False
    return one_may(rules, role, "consume")


def one_uses(rules: Rules, role: str | None, actions: list[str]) -> bool:
    if role is None:
        return False
    if role in rules.supers or role in rules.admins:
        return True
    return any(granted(rules, rules.of_namespace, role, action) for action in actions)


def roles_of(principal: Principal) -> list[str | None]:
    both = [principal.role]
    return both if principal.original is None else [*both, principal.original]


roles = st.sampled_from(ROLES)
grants = st.dictionaries(
    roles.filter(bool), st.lists(st.sampled_from(["produce", "consume", "sinks"]), unique=True), max_size=4
)
rules_of = st.builds(
    Rules,
    supers=st.frozensets(roles, max_size=2),
    admins=st.frozensets(roles, max_size=2),
    of_namespace=grants,
    of_topic=grants,
    subscriptions=st.dictionaries(
        st.sampled_from(SUBSCRIPTIONS[1:]), st.lists(roles, max_size=2), max_size=2
    ),
    mode=st.sampled_from(["", "None", "Prefix"]),
    wildcards=st.booleans(),
)
principals = st.builds(Principal, st.none() | roles, st.none() | roles)


@settings(max_examples=examples(400), deadline=None)
@given(rules_of, principals, st.sampled_from(SUBSCRIPTIONS))
def test_decisions_are_those_of_the_model(rules: Rules, principal: Principal, subscription: str) -> None:
    decisions, rights, both = rules.decisions(), rules.rights(), roles_of(principal)
    assert decisions.all_super_users(principal) == all(role in rules.supers for role in both)
    administers = all(role in rules.supers | rules.admins for role in both)
    assert decisions.administers(principal, rights) == administers
    assert decisions.may_produce(principal, rights) == all(one_may(rules, role, "produce") for role in both)
    assert decisions.may_look_up(principal, rights) == all(
        one_may(rules, role, "produce") or one_may(rules, role, "consume") for role in both
    )
    assert decisions.may_consume(principal, rights, subscription) == all(
        one_consumes(rules, role, subscription) for role in both
    )
    for names, actions in ((["consume"], CONSUME), (["produce", "consume"], PRODUCE | CONSUME)):
        expected = all(one_uses(rules, role, names) for role in both)
        assert decisions.may_use_namespace(principal, rights, actions) == expected


def test_super_users_follow_the_configuration_while_it_changes() -> None:
    config = AuthorizationConfig(enabled=True, super_user_roles=("root",))
    decisions = Decisions(config)
    assert decisions.is_super_user("root")
    object.__setattr__(config, "super_user_roles", ("other",))
    assert decisions.is_super_user("other")
    assert not decisions.is_super_user("root")


@pytest.mark.parametrize("original", ["nothing", "root"])
def test_a_proxy_passes_only_with_the_rights_of_both(original: str) -> None:
    rules = Rules(supers=frozenset({"proxy"}), of_topic={"root": ["produce"]})
    allowed = rules.decisions().may_produce(Principal("proxy", original), rules.rights())
    assert allowed == (original == "root")
    assert not rules.decisions().all_super_users(Principal("proxy", original))


@pytest.mark.parametrize(
    ("principal", "allowed"),
    [
        (Principal("root", "root"), True),
        (Principal("root", "b"), False),
        (Principal("b", "root"), False),
        (Principal("b", "b"), False),
        (Principal(None, "root"), False),
    ],
)
def test_every_decision_needs_the_rights_of_a_proxy_and_of_its_client(
    principal: Principal, allowed: bool
) -> None:
    rules = Rules(supers=frozenset({"root"}))
    decisions, rights = rules.decisions(), rules.rights()
    assert {
        decisions.all_super_users(principal),
        decisions.administers(principal, rights),
        decisions.may_produce(principal, rights),
        decisions.may_consume(principal, rights, "s"),
        decisions.may_look_up(principal, rights),
        decisions.may_use_namespace(principal, rights, PRODUCE | CONSUME),
    } == {allowed}


def test_grants_of_a_topic_do_not_list_the_namespace() -> None:
    rules = Rules(of_topic={"a": ["produce", "consume"]})
    assert rules.decisions().may_look_up(Principal("a"), rules.rights())
    assert not rules.decisions().may_use_namespace(Principal("a"), rules.rights(), PRODUCE | CONSUME)
