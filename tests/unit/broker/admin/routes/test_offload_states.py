"""Offload states over HTTP: what waits, runs, failed and is complete, by topic and by ledger."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from magnetar.broker.admin.routes import offload_states
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import TopicHead, encode
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_broker import KEYS
from tests.unit.broker.admin.routes.topics.test_offload import failed, ledger

if TYPE_CHECKING:
    from magnetar.common.metadata.values import TopicLedger

    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ROOT = "/admin/magnetar/v1"
NAMESPACE = f"{ROOT}/namespaces/acme/demo/offload"


async def add(http: Http, creation_id: int, name: str, *ledgers: TopicLedger) -> None:
    topic = TopicName.parse(f"persistent://acme/demo/{name}")
    await http.store.put(KEYS.topic_head(topic), encode(TopicHead(creation_id=creation_id)))
    for each in ledgers:
        await http.store.put(KEYS.topic_ledger(creation_id, each.ref.id), encode(each))


def test_the_states_of_a_topic_are_listed_those_to_look_at_first(serving: Serving) -> None:
    async def body(http: Http) -> None:
        complete = ledger(
            3, Offload.COMPLETE, location="s3://b/p", path="t/3", completed_ms=8, object_bytes=5
        )
        complete.byte_length = 70
        await add(
            http,
            1,
            "orders",
            complete,
            ledger(4),
            ledger(5, Offload.RUNNING, begun_ms=6, heard_ms=7),
            failed(6, 1, "first"),
            failed(7, 2, "no such bucket"),
            ledger(8, Offload.WANTED),
        )
        found = json.loads((await http.get(f"{ROOT}/persistent/acme/demo/orders/offload"))[1])
        counts = [found[name] for name in ("ledgers", "waiting", "running", "failed", "complete")]
        assert counts == [6, 1, 1, 2, 1]
        assert (found["error"], found["offloadedBytes"], found["lastCompleted"]) == ("no such bucket", 70, 8)
        assert [(each["ledgerId"], each["state"]) for each in found["states"]] == [
            (7, "failed"),
            (6, "failed"),
            (5, "running"),
            (8, "waiting"),
            (4, "none"),
            (3, "complete"),
        ]
        assert found["states"][-1]["location"] == "s3://b/p/t/3"
        assert (found["states"][2]["begun"], found["states"][2]["heard"]) == (6, 7)
        assert (await http.get(f"{ROOT}/persistent/acme/demo/absent/offload"))[0] == 404
        assert (await http.get(f"{ROOT}/non-persistent/acme/demo/orders/offload"))[0] == 405

    serving(body)


def test_a_namespace_is_read_in_pages(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_states, "TOPICS_MAX", 2)

    async def body(http: Http) -> None:
        for number in range(5):
            state = Offload.COMPLETE if number != 1 else Offload.STATE_UNSPECIFIED
            await add(http, number, f"t{number}", ledger(1, state))
        first = json.loads((await http.get(NAMESPACE))[1])
        assert [each["topic"][-2:] for each in first["topics"]] == ["t0", "t2"]
        assert (first["read"], first["next"]) == (3, "persistent://acme/demo/t2")
        second = json.loads((await http.get(f"{NAMESPACE}?after={first['next']}"))[1])
        assert [each["topic"][-2:] for each in second["topics"]] == ["t3", "t4"]
        last = json.loads((await http.get(f"{NAMESPACE}?after={second['next']}"))[1])
        assert last == {"topics": [], "read": 0, "next": ""}
        assert (await http.get(f"{NAMESPACE}?after=persistent://public/default/t"))[0] == 412
        assert (await http.get(f"{ROOT}/namespaces/acme/absent/offload"))[0] == 404

    serving(body)
