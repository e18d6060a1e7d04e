"""Lists of topics on the wire: by pattern, with their hash, and watched."""

from __future__ import annotations

import uuid
from typing import Any

import crc32c
import pytest

from tests.integration.admin_calls import admin, path_of
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line


def hash_of(*topics: str) -> str:
    """Computed here, independently: CRC32-C, its bytes from the lowest on."""
    return crc32c.crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()


@pytest.fixture
def prefix() -> str:
    """Topics of one test; short, since patterns have at most 50 characters beside the domain."""
    return f"persistent://public/default/{uuid.uuid4().hex[:8]}"


def pattern_of(prefix: str) -> str:
    return prefix.removeprefix("persistent://") + "-.*"


def topics_of_namespace(c: Line, **fields: Any) -> Any:
    request_id = c.request("getTopicsOfNamespace", namespace="public/default", **fields)
    return c.expect("getTopicsOfNamespaceResponse", request_id=request_id).command


def watch(c: Line, pattern: str, watcher_id: int = 1, **fields: Any) -> Any:
    request_id = c.request(
        "watchTopicList",
        namespace="public/default",
        watcher_id=watcher_id,
        topics_pattern=pattern,
        **fields,
    )
    return c.expect("watchTopicListSuccess", request_id=request_id, watcher_id=watcher_id).command


def test_watching_topics_is_announced(endpoint: Endpoint) -> None:
    with line(endpoint, connected=False) as c:
        assert c.connect().command.feature_flags.supports_topic_watchers


@pytest.mark.parametrize("namespace", ["public/not-there", "not-there/either"])
def test_a_namespace_that_does_not_exist_has_no_topics(endpoint: Endpoint, namespace: str) -> None:
    with line(endpoint) as c:
        for pattern in ({}, {"topics_pattern": f"{namespace}/.*"}):
            request_id = c.request("getTopicsOfNamespace", namespace=namespace, **pattern)
            answer = c.expect("getTopicsOfNamespaceResponse", request_id=request_id).command
            assert (list(answer.topics), answer.topics_hash, answer.changed) == ([], "00000000", True)
        request_id = c.request(
            "watchTopicList", namespace=namespace, watcher_id=1, topics_pattern=f"{namespace}/.*"
        )
        watched = c.expect("watchTopicListSuccess", request_id=request_id, watcher_id=1).command
        assert list(watched.topic) == []


def test_a_list_by_pattern_has_its_hash_and_is_not_sent_again_unchanged(
    endpoint: Endpoint, prefix: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(f"{prefix}-a", 1)
        c.open_producer(f"{prefix}-b", 2)
        c.open_producer(f"{prefix}x", 3)
        answer = topics_of_namespace(c, topics_pattern=pattern_of(prefix))
        assert (answer.filtered, answer.changed) == (True, True)
        assert sorted(answer.topics) == [f"{prefix}-a", f"{prefix}-b"]
        assert answer.topics_hash == hash_of(*answer.topics)
        known = answer.topics_hash
        answer = topics_of_namespace(c, topics_pattern=pattern_of(prefix), topics_hash=known)
        assert (answer.filtered, answer.changed, list(answer.topics)) == (True, False, [])
        assert answer.topics_hash == known
        c.open_producer(f"{prefix}-c", 4)
        answer = topics_of_namespace(c, topics_pattern=pattern_of(prefix), topics_hash=known)
        assert answer.changed
        assert len(answer.topics) == 3


def test_a_pattern_that_is_too_long_is_left_to_the_client(endpoint: Endpoint, prefix: str) -> None:
    with line(endpoint) as c:
        c.open_producer(f"{prefix}-a")
        answer = topics_of_namespace(c, topics_pattern="public/default/" + "a?" * 20)
        assert not answer.filtered
        assert f"{prefix}-a" in answer.topics


def test_the_domain_of_a_pattern_is_no_part_of_its_length(endpoint: Endpoint, prefix: str) -> None:
    with line(endpoint) as c:
        c.open_producer(f"{prefix}-a")
        pattern = f"{prefix}-.*|".ljust(len("persistent://") + 50, "x")
        assert list(watch(c, pattern).topic) == [f"{prefix}-a"]
        longer = c.request(
            "watchTopicList", namespace="public/default", watcher_id=2, topics_pattern=pattern + "x"
        )
        c.expect_error(longer, "NotAllowedError")


def test_a_watcher_has_the_list_and_is_told_of_what_comes(endpoint: Endpoint, prefix: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        other.open_producer(f"{prefix}-a", 1)
        answer = watch(c, pattern_of(prefix), 7)
        assert list(answer.topic) == [f"{prefix}-a"]
        assert answer.topics_hash == hash_of(f"{prefix}-a")
        other.open_producer(f"{prefix}x", 2)
        other.open_producer(f"non-{prefix}-volatile", 3)
        other.open_producer(f"{prefix}-b", 4)
        update = c.expect("watchTopicUpdate", watcher_id=7).command
        assert (list(update.new_topics), list(update.deleted_topics)) == ([f"{prefix}-b"], [])
        assert update.topics_hash == hash_of(f"{prefix}-a", f"{prefix}-b")
        c.expect_quiet()


def test_a_watcher_that_knows_the_list_is_not_sent_it(endpoint: Endpoint, prefix: str) -> None:
    with line(endpoint) as c:
        c.open_producer(f"{prefix}-a")
        known = hash_of(f"{prefix}-a")
        answer = watch(c, pattern_of(prefix), topics_hash=known)
        assert (list(answer.topic), answer.topics_hash) == ([], known)
        answer = watch(c, pattern_of(prefix), watcher_id=2, topics_hash="00000000")
        assert list(answer.topic) == [f"{prefix}-a"]


def test_asking_twice_for_one_watcher_is_answered_twice_and_told_once(
    endpoint: Endpoint, prefix: str
) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        watch(c, pattern_of(prefix))
        watch(c, pattern_of(prefix))
        other.open_producer(f"{prefix}-a")
        c.expect("watchTopicUpdate", watcher_id=1)
        c.expect_quiet()


def test_a_closed_watcher_is_told_nothing_and_closing_again_is_harmless(
    endpoint: Endpoint, prefix: str
) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        watch(c, pattern_of(prefix))
        for _ in range(2):
            c.expect("success", request_id=c.request("watchTopicListClose", watcher_id=1))
        other.open_producer(f"{prefix}-a")
        c.expect_quiet()
        assert list(watch(c, pattern_of(prefix)).topic) == [f"{prefix}-a"]


def test_a_close_behind_its_watch_leaves_no_watcher(endpoint: Endpoint, prefix: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        c.request("watchTopicList", namespace="public/default", watcher_id=1, topics_pattern=".*")
        request_id = c.request("watchTopicListClose", watcher_id=1)
        frames = [c.receive()]
        while frames[-1].name != "success":
            frames.append(c.receive())
        assert frames[-1].command.request_id == request_id
        other.open_producer(f"{prefix}-a")
        c.expect_quiet()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topics_pattern": "("}, "InvalidTopicName"),
        ({"topics_pattern": "a" * 51}, "NotAllowedError"),
        ({"topics_pattern": "kafka://.*"}, "InvalidTopicName"),
        ({"namespace": "nonsense"}, "InvalidTopicName"),
    ],
)
def test_invalid_topic_list_watch_is_refused_and_the_connection_stays_open(
    endpoint: Endpoint, fields: dict[str, str], error: str
) -> None:
    with line(endpoint) as c:
        asked = {"namespace": "public/default", "topics_pattern": ".*", "watcher_id": 1, **fields}
        c.expect_error(c.request("watchTopicList", **asked), error)
        if "topics_pattern" in fields and len(fields["topics_pattern"]) <= 50:
            request_id = c.request("getTopicsOfNamespace", namespace="public/default", **fields)
            c.expect_error(request_id, error)
        c.send("ping")
        c.expect("pong")


def test_a_connection_has_a_bounded_number_of_watchers(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        for watcher_id in range(1_000):
            c.request(
                "watchTopicList", namespace="public/default", watcher_id=watcher_id, topics_pattern="no"
            )
        for _ in range(1_000):
            c.expect("watchTopicListSuccess")
        request_id = c.request(
            "watchTopicList", namespace="public/default", watcher_id=1_000, topics_pattern="no"
        )
        c.expect_error(request_id, "TooManyRequests")
    with line(endpoint) as c:
        watch(c, "no")


def test_a_pattern_cannot_keep_the_broker_busy(endpoint: Endpoint, topic: str) -> None:
    """One that backtracks would, for centuries."""
    with line(endpoint) as c, line(endpoint) as other:
        c.open_producer("persistent://public/default/" + "a" * 3_000)
        answer = topics_of_namespace(c, topics_pattern="public/default/(a*)*b")
        assert (answer.filtered, list(answer.topics)) == (True, [])
        other.open_producer(topic)


def test_a_watcher_is_told_of_what_goes(endpoint: Endpoint, prefix: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        other.open_producer(f"{prefix}-a", 1)
        other.open_producer(f"{prefix}-b", 2)
        watch(c, pattern_of(prefix))
        volatile = f"non-{prefix}-v"
        assert list(watch(c, f"non-persistent://.*/{prefix[-8:]}.*", 2).topic) == []
        other.open_producer(volatile, 3)
        assert list(c.expect("watchTopicUpdate", watcher_id=2).command.new_topics) == [volatile]
        for topic, watcher_id in ((f"{prefix}-a", 1), (volatile, 2)):
            assert admin(endpoint, "DELETE", path_of(topic))[0] == 412
            status, answer = admin(endpoint, "DELETE", path_of(topic) + "?force=true")
            assert status == 204, answer
            update = c.expect("watchTopicUpdate", watcher_id=watcher_id).command
            assert (list(update.new_topics), list(update.deleted_topics)) == ([], [topic])
        assert update.topics_hash == hash_of()
