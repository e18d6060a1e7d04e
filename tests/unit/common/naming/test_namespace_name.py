"""Namespace names."""

from __future__ import annotations

import pytest
from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import DEFAULT_NAMESPACE, NamespaceName, check_entity


def test_text_form_and_back() -> None:
    name = NamespaceName.parse("acme/orders.eu-1")
    assert (name.tenant, name.namespace, str(name)) == ("acme", "orders.eu-1", "acme/orders.eu-1")
    assert NamespaceName.parse("public/default") == DEFAULT_NAMESPACE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("acme", "has the form tenant/namespace"),
        ("a/b/c/d", "has the form tenant/namespace"),
        ("acme/us/orders", "old namespace name with a cluster"),
        ("/orders", "tenant name is empty"),
        ("acme/", "namespace name is empty"),
        ("acme/or ders", "namespace name 'or ders' has a character"),
        ("acme/orders\n", "has a character"),
    ],
)
def test_a_bad_name_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        NamespaceName.parse(text)


def test_names_of_clusters_follow_the_same_rules() -> None:
    assert check_entity("cluster", "us-west:1") == "us-west:1"
    with pytest.raises(InvalidName, match="the cluster name"):
        check_entity("cluster", "us/west")
