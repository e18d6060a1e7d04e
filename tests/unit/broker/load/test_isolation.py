"""Which brokers may serve a namespace, by the isolation policies that the admin API keeps."""

from __future__ import annotations

from magnetar.broker.load.isolation import IsolationRules
from magnetar.common.metadata.values import Cluster
from magnetar.common.naming.namespace_name import NamespaceName

BROKERS = {"one.a:8080": 10.0, "two.a:8080": 20.0, "one.b:8080": 30.0, "shared:8080": 40.0}
ISOLATED = NamespaceName.parse("tenant/isolated")
OTHER = NamespaceName.parse("tenant/other")


def rules(**changes: object) -> IsolationRules:
    policy = Cluster.IsolationPolicy(
        namespaces=["tenant/isol.*"], primary=[r".*\.a"], secondary=[r"one\.b:8080"]
    )
    policy.parameters.update({"min_limit": "1", "usage_threshold": "80"})
    policy.parameters.update({key: str(value) for key, value in changes.items()})
    return IsolationRules({"policy": policy})


def test_a_namespace_of_a_policy_goes_to_its_primary_brokers_and_others_go_elsewhere() -> None:
    assert rules().allowed(ISOLATED, BROKERS) == {"one.a:8080", "two.a:8080"}
    assert rules().allowed(OTHER, BROKERS) == {"one.b:8080", "shared:8080"}
    assert rules().isolates(ISOLATED)
    assert not rules().isolates(OTHER)


def test_secondary_brokers_help_when_too_few_primary_ones_are_there_or_have_room() -> None:
    assert rules(min_limit=2).allowed(ISOLATED, BROKERS) == {"one.a:8080", "two.a:8080"}
    assert rules(min_limit=3).allowed(ISOLATED, BROKERS) == BROKERS.keys() - {"shared:8080"}
    assert rules(min_limit=2, usage_threshold=20).allowed(ISOLATED, BROKERS) >= {"one.b:8080"}
    assert rules().allowed(ISOLATED, {"one.b:8080": 0.0, "shared:8080": 0.0}) == {"one.b:8080"}


def test_no_broker_is_eligible_without_brokers_of_the_isolation_policy() -> None:
    assert rules().allowed(ISOLATED, {"shared:8080": 0.0}) == set()


def test_all_brokers_are_eligible_without_policies() -> None:
    assert IsolationRules({}).allowed(OTHER, BROKERS) == BROKERS.keys()


def test_the_first_policy_by_name_holds() -> None:
    first = Cluster.IsolationPolicy(namespaces=["tenant/.*"], primary=["shared:8080"])
    second = Cluster.IsolationPolicy(namespaces=["tenant/isolated"], primary=[r"one\.b"])
    both = IsolationRules({"2": second, "1": first})
    assert both.allowed(ISOLATED, BROKERS) == {"shared:8080"}
    assert both.allowed(NamespaceName.parse("t/free"), BROKERS) == {"one.a:8080", "two.a:8080"}


def test_a_policy_that_cannot_be_read_isolates_nothing_rather_than_stopping_everything() -> None:
    broken = Cluster.IsolationPolicy(namespaces=["(", "tenant/isolated"], primary=["(", r"one\.b"])
    broken.parameters.update({"min_limit": "many", "usage_threshold": "²"})
    assert IsolationRules({"broken": broken}).allowed(ISOLATED, BROKERS) == {"one.b:8080"}
