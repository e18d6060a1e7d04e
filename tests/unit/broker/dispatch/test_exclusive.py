from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.reason import Reason


@dataclass(eq=False)
class Fake:
    capacity: int
    priority_level: int = 0
    held_back_by: Reason | None = None


def test_the_one_consumer_gets_all_it_can_take() -> None:
    dispatcher: ExclusiveDispatcher[Fake] = ExclusiveDispatcher()
    consumer = Fake(7)
    assert dispatcher.next() is None
    dispatcher.add(consumer)
    assert dispatcher.next() == (consumer, 7)
    consumer.capacity = 0
    assert dispatcher.next() is None


def test_no_consumer_gets_messages_after_the_exclusive_one_closed() -> None:
    dispatcher: ExclusiveDispatcher[Fake] = ExclusiveDispatcher()
    consumer = Fake(7)
    dispatcher.add(consumer)
    dispatcher.remove(Fake(7))
    assert dispatcher.consumers == [consumer]
    dispatcher.remove(consumer)
    assert dispatcher.consumers == []
    assert dispatcher.next() is None
