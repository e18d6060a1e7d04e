"""Principals as they are named in refusals."""

from __future__ import annotations

import pytest
from magnetar.common.security.principal import Principal


@pytest.mark.parametrize(
    ("principal", "text"),
    [
        (Principal("a"), "role 'a'"),
        (Principal(None), "a caller without a role"),
        (Principal("proxy", "a"), "role 'proxy' on behalf of 'a'"),
    ],
)
def test_a_principal_names_its_roles(principal: Principal, text: str) -> None:
    assert str(principal) == text
