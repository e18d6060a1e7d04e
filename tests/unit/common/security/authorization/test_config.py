"""Configurations of authorization that must not start."""

from __future__ import annotations

from magnetar.common.security.authorization.config import AuthorizationConfig, authorization_problems


def test_authorization_needs_authentication() -> None:
    [problem] = authorization_problems(False, AuthorizationConfig(enabled=True))
    assert "authenticationEnabled" in problem
    assert authorization_problems(True, AuthorizationConfig(enabled=True)) == []


def test_switched_off_nothing_is_wrong() -> None:
    assert authorization_problems(False, AuthorizationConfig(super_user_roles=("*",))) == []


def test_no_role_is_a_super_user_by_a_wildcard() -> None:
    config = AuthorizationConfig(enabled=True, super_user_roles=("root", "*"), proxy_roles=("*",))
    problems = authorization_problems(True, config)
    assert [problem.split()[0] for problem in problems] == ["superUserRoles", "proxyRoles"]
