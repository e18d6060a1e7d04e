from __future__ import annotations

from magnetar.common.wire import ack_parser
from magnetar.common.wire.connection import ServerConnection
from magnetar.common.wire.events import AckGroup, AckRun

from tests.property.wire.strategies import ack_frame


def test_consecutive_acks_of_one_ledger_are_one_run() -> None:
    data = b"".join(ack_frame(7, 3, entry_id) for entry_id in (5, 300, 301, 127, 2**31, 2**40))
    (run,) = ServerConnection().receive_data(data)
    assert isinstance(run, AckRun)
    assert (run.consumer_id, run.ledger_id) == (7, 3)
    assert run.entry_ids == [5, 300, 301, 127, 2**31, 2**40]


def test_another_consumer_or_ledger_begins_another_run() -> None:
    data = ack_frame(1, 3, 5) + ack_frame(2, 3, 6) + ack_frame(2, 4, 7)
    runs = list(ServerConnection().receive_data(data))
    assert [(run.consumer_id, run.ledger_id, run.entry_ids) for run in runs if isinstance(run, AckRun)] == [
        (1, 3, [5]),
        (2, 3, [6]),
        (2, 4, [7]),
    ]


def test_ack_with_a_request_id_is_not_grouped() -> None:
    data = ack_frame(1, 3, 5) + ack_frame(1, 3, 6, request_id=9) + ack_frame(1, 3, 7)
    kinds = [type(event) for event in ServerConnection().receive_data(data)]
    assert kinds == [AckRun, AckGroup, AckRun]


def test_a_run_is_bounded() -> None:
    count = ack_parser.ACK_RUN_ENTRIES_MAX + 10
    runs = list(ServerConnection().receive_data(b"".join(ack_frame(1, 3, 200) for _ in range(count))))
    assert [len(run.entry_ids) for run in runs if isinstance(run, AckRun)] == [count - 10, 10]
