"""The keys of `magnetar top`, pressed in a screen without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click
import pytest
from magnetar.cli.top.live_table import Explanation, Question, Row, Sample, printable, question_of
from magnetar.cli.top.screen import TopApp
from textual.pilot import Pilot
from textual.widgets import DataTable, Static


class Cluster:
    """Answers from memory: topics t0 to t4, each with the subscriptions `quick` and `slow`."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.fails = ""
        self.name = "public/default/t"
        self.explained: list[Row] = []

    def read(self, question: Question) -> Sample:
        self.asked.append(question)
        if self.fails:
            raise click.ClickException(self.fails)
        rows = [self._row(question, number) for number in range(5)]
        shown = [row for row in rows if question.contains in str(row.values())]
        return Sample(shown, 250, at_s=len(self.asked))

    def _row(self, question: Question, number: int) -> Row:
        name = f"persistent://{self.name}{number}"
        match question.view:
            case "topics":
                return {"topic": name, "msgRateIn": float(number), "msgInCounter": 0}
            case "subscriptions":
                return {"topic": name, "subscription": f"s{number}", "msgBacklog": number}
            case "consumers":
                return {"consumerName": f"c{number}", "address": "/1.2.3.4:5", "msgRateOut": 1.0}
            case "namespaces":
                return {"namespace": f"public/n{number}", "msgRateIn": float(number)}
            case view:
                return {view[:-1]: f"it{number}", "msgRateIn": 1.0}

    def explain(self, question: Question, row: Row) -> Explanation | None:
        self.explained.append(row)
        if question.view == "bookies":
            return None
        return Explanation("s4 stands still", [("no_consumer", "no consumer is connected", "start one")])


def play(
    body: Callable[[TopApp, Pilot[None], Cluster], Awaitable[None]],
    view: str = "topics",
    interval_s: float = 60.0,
) -> None:
    """Runs a body while the screen is shown. Debug mode of asyncio makes widgets slow: off."""
    cluster = Cluster()

    async def run() -> None:
        app = TopApp(
            cluster.read,
            cluster.explain,
            question_of(view),
            interval_s=interval_s,
            source="http://b:8080",
            clock=lambda: 5.0,
        )
        async with app.run_test(size=(140, 30)) as pilot:
            await settled(app, pilot)
            await body(app, pilot, cluster)

    asyncio.run(run(), debug=False)


async def settled(app: TopApp, pilot: Pilot[None]) -> None:
    """Waits for the answer to the question that is shown."""
    await until(lambda: app.total > 0 or "retrying" in text(app, "#status"))
    await pilot.pause()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - the pilot's pause waits until nothing is drawn
            await asyncio.sleep(0.01)


def text(app: TopApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).render())


def shown(app: TopApp) -> list[str]:
    table: DataTable[Any] = app.query_one(DataTable)
    return [str(table.get_row_at(number)[0]) for number in range(table.row_count)]


async def press(app: TopApp, pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(app, pilot)


def test_rows_are_shown_in_order_and_numbers_change_the_view() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        assert shown(app) == [f"public/default/t{number}" for number in (4, 3, 2, 1, 0)]
        assert "topics 1-5 of 250  by in/s ▼" in text(app, "#title")
        assert "http://b:8080" in text(app, "#status")
        for key, view in (("2", "subscriptions"), ("3", "brokers"), ("4", "bookies"), ("5", "namespaces")):
            await press(app, pilot, key)
            assert app.question.view == view
            assert cluster.asked[-1].view == view
            assert text(app, "#title").startswith(view)

    play(body)


def test_keys_open_down_to_consumers_and_back() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        await press(app, pilot, "enter")
        assert (app.question.view, app.question.namespace) == ("topics", "public/n4")
        await press(app, pilot, "down", "enter")
        assert (app.question.view, app.question.topic) == ("subscriptions", "persistent://public/default/t3")
        await press(app, pilot, "enter")
        assert (app.question.view, app.question.subscription) == ("consumers", "s4")
        assert shown(app)[0] == "c0"
        for view in ("subscriptions", "topics", "namespaces"):
            await press(app, pilot, "escape")
            assert app.question.view == view
        await press(app, pilot, "escape")
        assert app.question == question_of("namespaces")

    play(body, "namespaces")


def test_a_filter_is_typed_applied_and_removed() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        await press(app, pilot, "slash", "t", "2", "enter")
        assert cluster.asked[-1].contains == "t2"
        await until(lambda: shown(app) == ["public/default/t2"])
        await press(app, pilot, "slash", "q", "escape")
        assert app.question.contains == "t2", "Escape leaves the filter as it was"
        await press(app, pilot, "escape")
        assert app.question.contains == ""

    play(body)


def test_sorting_paging_pausing_and_quitting() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        await press(app, pilot, "s")
        assert app.question.sort == "msgRateOut"
        await press(app, pilot, "S", "r")
        assert (app.question.sort, app.question.ascending) == ("msgRateIn", True)
        await press(app, pilot, "n")
        assert app.question.offset == 100
        await press(app, pilot, "p", "p")
        assert app.question.offset == 0
        await pilot.press("q")
        assert app.return_code == 0

    play(body)


def test_a_pause_stops_the_refresh_and_keys_still_ask() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        await until(lambda: len(cluster.asked) > 2)
        await pilot.press("space")
        assert "paused" in text(app, "#status")
        await asyncio.sleep(0.05)
        asked = len(cluster.asked)
        await asyncio.sleep(0.6)
        assert len(cluster.asked) == asked
        await press(app, pilot, "2")
        assert [each.view for each in cluster.asked[asked:]] == ["subscriptions"]
        await pilot.press("space")
        await until(lambda: len(cluster.asked) > asked + 2)

    play(body, interval_s=0.2)


def test_e_explains_the_selected_row_and_says_where_there_is_nothing_to_explain() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        await pilot.press("e")
        await until(lambda: bool(app.screen.query("#explanation")))
        found = text(app, "#explanation")
        assert "s4 stands still" in found
        assert "no_consumer" in found
        assert "→ start one" in found
        assert cluster.explained[0]["topic"].endswith("/t4")
        asked = len(cluster.asked)
        await until(lambda: len(cluster.asked) > asked + 1)
        assert app.is_running, "the table below goes on"
        await pilot.press("escape")
        await press(app, pilot, "4", "e")
        await until(lambda: bool(app.screen.query("#explanation")))
        assert "bookies are not explained; open a topic or a subscription (keys 1 and 2)" in text(
            app, "#explanation"
        )

    play(body, interval_s=0.2)


def test_a_broker_that_is_gone_is_shown_and_its_return_too() -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        cluster.fails = "no broker answers at http://b:8080: refused; start one, or set --admin-url"
        await pilot.press("s")
        await until(lambda: "retrying" in text(app, "#status"))
        assert "no broker answers" in text(app, "#status")
        assert "s old" in text(app, "#status")
        assert len(shown(app)) == 5, "the last rows stay"
        cluster.fails = ""
        await pilot.press("s")
        await until(lambda: "retrying" not in text(app, "#status"))

    play(body)


@pytest.mark.parametrize("name", ["[red]x[/red]", "\x1b[2Jx", "[/]"])
def test_hostile_names_are_only_text(name: str) -> None:
    async def body(app: TopApp, pilot: Pilot[None], cluster: Cluster) -> None:
        cluster.name = name
        await press(app, pilot, "1")
        await until(lambda: shown(app)[:1] == [printable(f"{name}4")])

    play(body)
