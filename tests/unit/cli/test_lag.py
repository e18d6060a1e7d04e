"""The lag report: rates, time to drain and order from two answers of a broker."""

from __future__ import annotations

from typing import Any

from magnetar.cli.lag import lags_of, row_of


def row(
    name: str, backlog: int, *, acks: int = 0, sent: int = 0, oldest: int = 0, codes: Any = ()
) -> dict[str, Any]:
    return {
        "topic": "persistent://a/b/t",
        "subscription": name,
        "msgBacklog": backlog,
        "backlogSize": 10 * backlog,
        "msgRateIn": 7.0,
        "messageAckRate": 8.0,
        "msgInCounter": sent,
        "ackCounter": acks,
        "oldestPublishTime": oldest,
        "codes": list(codes),
    }


def answer(at_ms: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"atMs": at_ms, "rows": list(rows), "total": len(rows), "unreachable": {}}


def test_two_samples_tell_rates_and_the_time_to_drain() -> None:
    before = answer(10_000, row("s", 100, acks=0, sent=1000))
    now = answer(12_000, row("s", 80, acks=400, sent=1100, oldest=2_000))
    (lag,) = lags_of(before, now)
    assert (lag.rate_in, lag.ack_rate, lag.drain_s, lag.oldest_s) == (50.0, 200.0, 8.0, 10.0)
    assert row_of(lag)["drains in"] == "8 s"


def test_the_worst_come_first_those_that_never_drain_before_those_that_take_long() -> None:
    names = ("quick", "slow", "stuck", "growing", "done")
    before = answer(0, *(row(name, size) for name, size in zip(names, (20, 900, 500, 100, 0), strict=True)))
    now = answer(
        1000,
        row("quick", 10),
        row("slow", 890),
        row("stuck", 500, codes=["no_consumer"]),
        row("growing", 600),
        row("done", 0, codes=["nothing_to_deliver"]),
    )
    lags = lags_of(before, now)
    assert [lag.subscription for lag in lags] == ["growing", "stuck", "slow", "quick", "done"]
    assert [row_of(lag)["drains in"] for lag in lags] == ["never", "never", "1.5 min", "1 s", "-"]
    assert [row_of(lag)["reason"] for lag in lags] == ["", "no_consumer", "", "", ""]


def test_without_an_earlier_sample_rates_are_averages_of_the_broker_and_the_time_is_not_known() -> None:
    (lag,) = lags_of(answer(0), answer(1000, row("new", 5)))
    assert (lag.rate_in, lag.ack_rate, lag.drain_s) == (7.0, 8.0, None)
    (lag,) = lags_of(answer(0, row("s", 5, acks=9, sent=9)), answer(1000, row("s", 5, acks=1, sent=1)))
    assert (lag.rate_in, lag.ack_rate) == (7.0, 8.0), "its topic was loaded again"


def test_names_cannot_move_the_cursor() -> None:
    (lag,) = lags_of(answer(0), answer(1, row("a\x1b[2J", 1)))
    assert row_of(lag)["subscription"].isprintable()
