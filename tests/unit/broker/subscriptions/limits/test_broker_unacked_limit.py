from __future__ import annotations

from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit, broker_unacked_limit


class Fake:
    def __init__(self) -> None:
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1


def test_nothing_is_counted_unless_the_limit_is_on() -> None:
    assert broker_unacked_limit(DispatchConfig()) is None
    off = DispatchConfig(broker_unacked_max=100, subscription_share_of_broker_unacked=0)
    assert broker_unacked_limit(off) is None
    assert broker_unacked_limit(DispatchConfig(broker_unacked_max=100)) is not None


def test_at_the_limit_only_those_with_more_than_their_part_wait() -> None:
    limit = BrokerUnackedLimit(100, 16)
    big, small, later = Fake(), Fake(), Fake()
    limit.report(big, 84)
    assert not limit.pauses(big)
    limit.report(small, 16)
    assert (limit.total, limit.blocked) == (100, True)
    assert (limit.pauses(big), limit.pauses(small)) == (True, False)
    limit.report(later, 17)
    assert limit.pauses(later)


def test_a_subscription_goes_on_below_half_of_its_part() -> None:
    limit = BrokerUnackedLimit(100, 16)
    one, other = Fake(), Fake()
    limit.report(other, 90)
    limit.report(one, 20)
    limit.report(one, 8)
    assert (limit.pauses(one), one.wakes) == (True, 0)
    limit.report(one, 7)
    assert (limit.pauses(one), one.wakes) == (False, 1)
    assert limit.pauses(other)


def test_all_go_on_when_the_broker_is_below_half_of_its_limit() -> None:
    limit = BrokerUnackedLimit(100, 16)
    one, other = Fake(), Fake()
    limit.report(one, 80)
    limit.report(other, 20)
    limit.report(one, 30)
    assert (limit.blocked, limit.pauses(one), limit.pauses(other)) == (True, True, True)
    limit.report(one, 29)
    assert (limit.blocked, limit.pauses(one), limit.pauses(other)) == (False, False, False)
    assert (one.wakes, other.wakes) == (1, 1)


def test_dispatcher_without_unacked_messages_is_removed() -> None:
    limit = BrokerUnackedLimit(100, 16)
    one = Fake()
    limit.report(one, 100)
    limit.report(one, 0)
    assert (limit.total, limit.blocked, limit.pauses(one)) == (0, False, False)
    limit.report(one, 0)
    assert limit.total == 0
