"""Something that is done to the topics of a namespace, bundle by bundle, wherever they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.objects import partitions
from magnetar.broker.admin.objects.namespace_topics import on_bundles
from magnetar.common.errors import ServiceNotReady, TopicNotFound
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.bundle_range import BundleRange, split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_cluster import FakeCluster, registration

BUNDLES = split_ring(4)
NAMES = [TopicName.parse(f"persistent://acme/demo/t-{number}") for number in range(40)]


class FirstHalf(FakeCluster):
    """This broker has the first two bundles."""

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> object | None:
        return self if bundle in BUNDLES[:2] else None


def asked_of(
    here: Callable[[list[TopicName]], Any],
    answer: Callable[[str], Any],
    cluster: FakeCluster | None = None,
    named: BundleRange | None = None,
) -> tuple[bool | Exception, list[str]]:
    """What comes of POST .../unsubscribe/s, and the paths that others were asked for."""
    paths: list[str] = []

    async def ask(broker: Any, method: str, path: str, *, caller: object) -> None:
        paths.append(f"{broker.broker_id} {method} {path}")
        found = answer(path)
        if found is not None:
            raise found

    async def namespace(name: NamespaceName) -> Namespace:
        return Namespace(bundle_count=4)

    where = "" if named is None else f"{named}/"
    url = SimpleNamespace(raw_path=f"/admin/v2/namespaces/acme/demo/{where}unsubscribe/s")
    call: Any = SimpleNamespace(
        names={} if named is None else {"bundle": str(named)},
        namespace=NamespaceName("acme", "demo"),
        broker=SimpleNamespace(
            cluster=cluster or FirstHalf(), policy_writer=SimpleNamespace(namespace=namespace)
        ),
        request=SimpleNamespace(method="POST", rel_url=url, app={PEERS: SimpleNamespace(ask=ask)}),
    )

    async def act(names: list[TopicName]) -> bool:
        found = here(names)
        if isinstance(found, Exception):
            raise found
        return bool(found)

    async def run() -> bool | Exception:
        try:
            return await on_bundles(call, NAMES, act)
        except Exception as error:
            return error

    return asyncio.run(run()), paths


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "AGAIN_AFTER_S", 0.0)


def test_every_bundle_is_done_by_its_owner() -> None:
    done: list[TopicName] = []
    found, paths = asked_of(lambda names: done.extend(names), lambda path: TopicNotFound("none"))
    assert found is False, "no topic has it"
    assert set(done) == {name for name in NAMES if name.hash < BUNDLES[2].lower}
    path = "/admin/v2/namespaces/acme/demo/{}/unsubscribe/s"
    assert paths == [f"other:8080 POST {path.format(bundle)}" for bundle in BUNDLES[2:]]
    assert asked_of(lambda names: False, lambda path: None)[0] is True


def test_a_call_that_names_its_bundle_names_it_once_when_it_is_sent_on() -> None:
    found, paths = asked_of(lambda names: False, lambda path: None, named=BUNDLES[2])
    assert found is True
    path = "/admin/v2/namespaces/acme/demo/{}/unsubscribe/s"
    assert paths == [f"other:8080 POST {path.format(bundle)}" for bundle in BUNDLES[2:]]


def test_failed_topic_is_named_and_the_others_are_processed() -> None:
    done: list[TopicName] = []

    def answer(path: str) -> Any:
        return Refused(412, "in use") if str(BUNDLES[2]) in path else ServiceNotReady("b2 is gone")

    found, paths = asked_of(lambda names: done.extend(names), answer)
    assert isinstance(found, Refused)
    assert found.status == 412
    assert found.reason == (
        f"{BUNDLES[2]}: in use; {BUNDLES[3]}: b2 is gone (2 of 4 bundles failed, the others are done; "
        "try again, which skips those that are done)"
    )
    assert (len(done) > 0, len(paths)) == (True, 2)
    found, _ = asked_of(lambda names: Refused(412, "in use"), lambda path: Refused(412, "in use"))
    assert str(found).startswith(f"{', '.join(map(str, BUNDLES))}: in use (4 of 4 bundles failed")


def test_a_bundle_that_goes_to_another_broker_meanwhile_is_done_by_that_one() -> None:
    cluster = FakeCluster(owners=[registration(f"b{number}:1") for number in range(5)])
    answers: list[Any] = [ServiceNotReady("not mine"), None, None, None, None]
    found, paths = asked_of(lambda names: False, lambda path: answers.pop(0), cluster)
    assert found is True
    assert sorted(path.split()[0] for path in paths) == [f"b{number}:1" for number in range(5)]
