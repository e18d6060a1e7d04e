from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.dispatch.eligibility import explain


@dataclass
class Fake:
    held_back_by: str | None
    priority_level: int = 0

    @property
    def capacity(self) -> int:
        return 0 if self.held_back_by else 1


def test_each_cause_is_named_and_a_free_subscription_has_none() -> None:
    free, stuck = Fake(None), Fake("consumer c has given no permits")
    explained = [
        explain([free], 0, reading=False, unacked_limit_reached=False),
        explain([], 5, reading=False, unacked_limit_reached=False),
        explain([free], 5, reading=False, unacked_limit_reached=True),
        explain([stuck, stuck], 5, reading=False, unacked_limit_reached=False),
        explain([free], 5, reading=True, unacked_limit_reached=False, throttled_by="the topic"),
        explain([free], 5, reading=True, unacked_limit_reached=False, waits_for="transaction (0,0)"),
        explain([free], 5, reading=False, unacked_limit_reached=False, waits_for="transaction (0,0)"),
    ]
    causes = [
        "nothing to deliver",
        "no consumer",
        "maxUnackedMessagesPerSubscription",
        "no permits",
        "throttled by the dispatch rate of the topic",
        "storage",
        "waits for transaction (0,0)",
    ]
    for text, cause in zip(explained, causes, strict=True):
        assert text is not None
        assert cause in text
    assert explain([free, stuck], 5, reading=False, unacked_limit_reached=False) is None
