"""Names and properties of dead letters and retry letters, as Java's client writes them."""

from __future__ import annotations

import pytest
from magnetar.client.consumer.dead_letters import DeadLetterPolicy, dead_letter_properties, retry_letter
from magnetar.client.messages import MessageId

TOPIC = "persistent://public/default/orders"


@pytest.mark.parametrize("topic", ["orders", TOPIC, f"{TOPIC}-partition-3"])
def test_default_names_are_those_of_the_whole_topic(topic: str) -> None:
    policy = DeadLetterPolicy(redeliveries_max=2)
    assert policy.dead_letter_topic(topic, "sub") == f"{TOPIC}-sub-DLQ"
    assert policy.retry_letter_topic(topic, "sub") == f"{TOPIC}-sub-RETRY"


def test_given_names_are_completed() -> None:
    policy = DeadLetterPolicy(redeliveries_max=2, topic="dead", retry_topic="a/b/later")
    assert policy.dead_letter_topic(TOPIC, "sub") == "persistent://public/default/dead"
    assert policy.retry_letter_topic(TOPIC, "sub") == "persistent://a/b/later"


def test_a_message_is_delivered_once_more_than_its_redeliveries() -> None:
    policy = DeadLetterPolicy(redeliveries_max=2)
    assert [policy.is_dead(count) for count in range(4)] == [False, False, True, True]
    with pytest.raises(ValueError, match="give at least 1"):
        DeadLetterPolicy(redeliveries_max=0)


def test_a_dead_letter_says_where_it_came_from_first() -> None:
    first = dead_letter_properties(TOPIC, "sub", MessageId(1, 0), {"mine": "1"})
    assert first == {
        "mine": "1",
        "REAL_TOPIC": TOPIC,
        "REAL_SUBSCRIPTION": "sub",
        "ORIGIN_MESSAGE_ID": "1:0:-1",
        "ORIGIN_MESSAGE_IDY_TIME": "1:0:-1",
    }
    assert dead_letter_properties(f"{TOPIC}-sub-RETRY", "sub", MessageId(9, 9), first) == first


def test_retries_count_up_and_end_in_the_dead_letter_topic() -> None:
    policy = DeadLetterPolicy(redeliveries_max=2)
    properties: dict[str, str] = {"RECONSUMETIMES": "not a number"}
    seen = []
    for entry in range(3):
        letter = retry_letter(
            policy, TOPIC, "sub", MessageId(1, entry), properties, 3.0, {"RECONSUMETIMES": "9"}
        )
        properties = dict(letter.properties)
        seen.append((properties["RECONSUMETIMES"], properties["DELAY_TIME"], letter.delay_s, letter.is_dead))
    assert seen == [("1", "3000", 3.0, False), ("2", "3000", 3.0, False), ("3", "3000", 0.0, True)]
    assert properties["ORIGIN_MESSAGE_ID"] == "1:0:-1"
