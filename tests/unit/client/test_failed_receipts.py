"""An acknowledgement whose receipt is an error counts as not given."""

from __future__ import annotations

from magnetar.client.consumer.acknowledgements import Acknowledgements
from magnetar.client.messages import EntryLeft


def test_a_cumulative_acknowledgement_that_the_broker_may_not_have_is_sent_again_when_it_is_repeated() -> (
    None
):
    acks = Acknowledgements()
    acks.cumulative(-1, EntryLeft([(1, 5)], 0))
    assert len(acks.commands(7)) == 1
    acks.cumulative(-1, EntryLeft([(1, 5)], 0))
    assert not acks.commands(7), "it is on its way"
    acks.forget_cumulative()
    assert not acks.is_acknowledged((1, 5)), "or its message would be dropped when it comes again"
    acks.cumulative(-1, EntryLeft([(1, 5)], 0))
    (again,) = acks.commands(7)
    assert [(each.ledgerId, each.entryId) for each in again.message_id] == [(1, 5)]


def test_a_later_acknowledgement_that_waits_is_kept_when_an_earlier_one_failed() -> None:
    acks = Acknowledgements()
    acks.cumulative(-1, EntryLeft([(1, 5)], 0))
    acks.commands(7)
    acks.cumulative(-1, EntryLeft([(1, 6)], 0))
    acks.forget_cumulative()
    (later,) = acks.commands(7)
    assert [(each.ledgerId, each.entryId) for each in later.message_id] == [(1, 6)]
