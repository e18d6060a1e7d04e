"""Which objects have to stay, a page at a time: no page leaves a topic out that has some."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.broker.offload import live_attempts
from magnetar.broker.offload.live_attempts import attempts_at
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import LedgerRef, Namespace, TopicHead, TopicLedger, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import AttemptsRequest
from magnetar.ledger.cold.layout import attempt_path

from tests.unit.broker.offload.stored_world import KEYS, LOCATION, World, attempt_of, in_world

NAMESPACES = ("t/a", "t/a-b", "t/a.b", "t/a=b", "t/b", "t-u/a", "t-u/a-b", "t.u/a")
"""Some of their names continue others, with what sorts before a slash."""


def test_pages_tell_of_the_topics_of_every_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: World) -> None:
        expected = set()
        for number, namespace in enumerate(NAMESPACES, 1):
            for creation_id, local_name in enumerate(("x", "x-y"), 2 * number):
                topic = TopicName.parse(f"persistent://{namespace}/{local_name}")
                path = attempt_path(topic, creation_id, attempt_of(creation_id))
                ledger = TopicLedger(ref=LedgerRef(id=creation_id, key=1), last_entry_id=4, entries=5)
                ledger.offload.CopyFrom(
                    Offload(
                        state=Offload.COMPLETE,
                        attempt=attempt_of(creation_id),
                        location=LOCATION,
                        path=path,
                    )
                )
                put = world.metadata.put
                await put(KEYS.namespace(topic.namespace), encode(Namespace()))
                await put(KEYS.topic_head(topic), encode(TopicHead(creation_id=creation_id)))
                await put(KEYS.topic_ledger(creation_id, creation_id), encode(ledger))
                expected.add(path)
        monkeypatch.setattr(live_attempts, "PATHS_MAX", 1)
        told: list[str] = []
        after = ""
        while True:
            page = await attempts_at(world.ledgers, AttemptsRequest(after_topic=after))
            assert page.complete
            told += page.paths
            after = page.next_after_topic
            if not after:
                break
        assert sorted(told) == sorted(expected)

    in_world(tmp_path, body)
