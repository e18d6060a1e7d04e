"""The screen of `magnetar top`: keys and widgets around `live_table`, which has the rules.

A refresh is one request in a thread; while it runs, keys work. The error of a failed one is shown below the
last rows, and the next one follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import ClassVar, Final

import click
from magnetar.cli.top.live_table import (
    TABS,
    VIEWS,
    Explanation,
    Question,
    Row,
    Sample,
    cell,
    filtered,
    key_of,
    opened,
    pause_s,
    printable,
    question_of,
    sorted_by,
    sorted_by_next,
    title,
    turned,
    with_rates,
)
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import Worker, WorkerError

Read = Callable[[Question], Sample]
"""Answers a question. Called in a thread; raises ClickException."""
Explain = Callable[[Question, Row], Explanation | None]
"""Explains a row; None where nothing is to be explained. Called in a thread; raises ClickException."""

INTERVAL_MIN_S: Final = 0.5


class ExplanationScreen(ModalScreen[None]):
    """The reasons for the selected row, over the table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,e,q,enter", "dismiss", "Close")]
    DEFAULT_CSS = """
    ExplanationScreen { align: center middle; }
    ExplanationScreen > VerticalScroll {
        width: 90%; height: auto; max-height: 80%; border: round $accent; padding: 1 2; background: $surface;
    }
    """

    def __init__(self, explanation: Explanation) -> None:
        super().__init__()
        self._explanation = explanation

    def compose(self) -> ComposeResult:
        shown = Text(self._explanation.heading, style="bold")
        for code, sentence, following in self._explanation.reasons:
            shown.append("\n\n").append(code, style="bold cyan").append(f"\n{sentence}")
            if following:
                shown.append("\n→ ", style="green").append(following)
        yield VerticalScroll(Static(shown, id="explanation"))


class TopApp(App[None]):
    """The live table. `read` and `explain` are called in threads; the caller owns what they use."""

    TITLE = "magnetar top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #views, #title, #status { height: 1; padding: 0 1; }
    #views { background: $panel; }
    #title { text-style: bold; }
    #filter { display: none; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"view('{name}')", name, show=False) for number, name in enumerate(TABS, 1)),
        Binding("enter", "open", "Open", show=True),
        Binding("escape,backspace", "up", "Back"),
        Binding("e", "explain", "Explain"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort left", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("n", "page(1)", "Next page"),
        Binding("p", "page(-1)", "Previous"),
        Binding("plus,equals_sign", "interval(0.5)", "Faster", show=False),
        Binding("minus", "interval(2)", "Slower", show=False),
        Binding("space", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self,
        read: Read,
        explain: Explain,
        question: Question,
        *,
        interval_s: float,
        source: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`source` is the URL that is shown."""
        super().__init__()
        self._read = read
        self._explain = explain
        self._source = source
        self._interval_s = interval_s
        self._before: Sample | None = None
        self._error = ""
        self._answered = 0.0
        self._took_s = 0.0
        self._paused = False
        self._clock = clock
        self._refreshing: Worker[None] | None = None
        self._asked = False
        # A key asked for other rows: they are read also while the refresh is paused.
        self._wake = asyncio.Event()
        # Widgets by name, not by queries: those ask the screen on top, which may be an explanation.
        self._views, self._title, self._status = Static(id="views"), Static(id="title"), Static(id="status")
        self._table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True)
        self._filter = Input(placeholder="filter by name; Enter applies, empty shows all", id="filter")
        self.question = question
        self.above: list[Question] = []
        """Questions to return to, the outermost first."""
        self.rows: list[Row] = []
        self.total = 0
        self._drawn: list[Row] = []
        # The rows in the table, which the cursor points into.

    def compose(self) -> ComposeResult:
        yield self._views
        yield self._title
        yield self._table
        yield self._filter
        yield self._status
        yield Footer()

    def on_mount(self) -> None:
        self.theme = "textual-dark"
        self._draw_frame()
        self._table.focus()
        self._refreshing = self.run_worker(self._refresh_forever())
        self.set_interval(1.0, self._draw_status)

    async def on_unmount(self) -> None:
        """Ends the refresh; a request that is under way ends by itself."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(WorkerError):
                await self._refreshing.wait()

    # Reading

    async def _refresh_forever(self) -> None:
        while True:
            self._wake.clear()
            if not self._paused or self._asked:
                self._asked = False
                await self._refresh()
            try:
                await asyncio.wait_for(self._wake.wait(), pause_s(self._interval_s, self._took_s))
            except TimeoutError:
                pass

    async def _refresh(self) -> None:
        question, started = self.question, self._clock()
        try:
            sample = await asyncio.to_thread(self._read, question)
        except click.ClickException as error:
            self._error = printable(error.format_message())
            self._took_s = self._clock() - started
            self._draw_status()
            return
        self._took_s, self._answered = self._clock() - started, self._clock()
        if question != self.question:  # A key was pressed meanwhile; its own answer follows.
            return
        missing = [f"{broker}: {why}" for broker, why in sample.unreachable.items()]
        self._error = printable("; ".join(missing))
        self.rows, self.total = with_rates(question, sample, self._before), sample.total
        self._before = sample
        self._draw_rows()

    def _ask(self, question: Question) -> None:
        """Shows another question: the table is filled when its answer is there."""
        before, self.question = self.question, question
        if key_parts(before) != key_parts(question):
            self.rows, self.total, self._before = [], 0, None
            self._draw_rows()
        self._draw_frame()
        self._asked = True
        self._wake.set()

    # Drawing

    def _draw_frame(self) -> None:
        views = Text()
        for number, name in enumerate(TABS, 1):
            chosen = name == self.question.view
            views.append(f" {number} {name} ", style="reverse bold" if chosen else "")
        self._views.update(views)
        self._title.update(Text(title(self.question, self.total, len(self.rows))))
        self._draw_status()

    def _draw_status(self) -> None:
        status = Text()
        if self._error:
            old = f" (rows are {self._clock() - self._answered:.0f} s old)" if self._answered else ""
            status.append(f"{self._error}{old}; retrying", style="bold red")
        else:
            every = pause_s(self._interval_s, self._took_s)
            state = "paused" if self._paused else f"every {every:.3g} s"
            status.append(f"{self._source}  {state}  answer in {self._took_s * 1000:.0f} ms", style="dim")
        self._status.update(status)

    def _draw_rows(self) -> None:
        table = self._table
        selected = self.selected()
        chosen, at = None if selected is None else key_of(self.question, selected), table.cursor_row
        scroll = table.scroll_offset
        table.clear(columns=True)
        for column in VIEWS[self.question.view].columns:
            mark = " ▲" if self.question.ascending else " ▼"
            sorts = column.key == self.question.sort
            heading = Text(column.title + (mark if sorts else ""), style="bold" if sorts else "")
            table.add_column(heading, key=column.key)
        for place, row in enumerate(self.rows):
            cells = [
                Text(cell(column, row), justify="left" if column.kind == "text" else "right")
                for column in VIEWS[self.question.view].columns
            ]
            key = key_of(self.question, row)
            table.add_row(*cells, key=key)
            if key == chosen:
                at = place
        if self.rows:
            table.move_cursor(row=min(at, len(self.rows) - 1), scroll=False)
            table.scroll_to(scroll.x, scroll.y, animate=False)
        self._drawn = list(self.rows)
        self._draw_frame()

    def selected(self) -> Row | None:
        """Returns the row under the cursor; None in an empty table."""
        at = self._table.cursor_row
        return self._drawn[at] if 0 <= at < len(self._drawn) else None

    # Keys

    def action_view(self, name: str) -> None:
        self.above.clear()
        self._ask(question_of(name, limit=self.question.limit))

    def action_open(self) -> None:
        row = self.selected()
        below = None if row is None else opened(self.question, row)
        if below is not None:
            self.above.append(self.question)
            self._ask(below)

    def on_data_table_row_selected(self) -> None:
        """Enter or a click in the table."""
        self.action_open()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self._ask(sorted_by(self.question, str(event.column_key.value)))

    def action_up(self) -> None:
        box = self._filter
        if box.has_class("shown"):
            self._close_filter()
        elif self.question.contains:
            self._ask(filtered(self.question, ""))
        elif self.above:
            self._ask(self.above.pop())

    def action_sort(self, step: int) -> None:
        self._ask(sorted_by_next(self.question, step))

    def action_reverse(self) -> None:
        self._ask(sorted_by(self.question, self.question.sort))

    def action_page(self, step: int) -> None:
        self._ask(turned(self.question, step, self.total))

    def action_interval(self, factor: float) -> None:
        self._interval_s = min(max(self._interval_s * factor, INTERVAL_MIN_S), 60.0)
        self._draw_status()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._draw_status()
        self._wake.set()

    def action_filter(self) -> None:
        box = self._filter
        box.value = self.question.contains
        box.add_class("shown")
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter()
        self._ask(filtered(self.question, event.value))

    def _close_filter(self) -> None:
        self._filter.remove_class("shown")
        self._table.focus()

    def action_explain(self) -> None:
        row = self.selected()
        if row is not None:
            self.run_worker(self._show_explanation(self.question, row), exclusive=False)

    async def _show_explanation(self, question: Question, row: Row) -> None:
        try:
            found = await asyncio.to_thread(self._explain, question, row)
        except click.ClickException as error:
            found = Explanation("cannot explain", [("", printable(error.format_message()), "")])
        if found is None:
            found = Explanation(
                f"{question.view} are not explained; open a topic or a subscription (keys 1 and 2)"
            )
        await self.push_screen(ExplanationScreen(found))


def key_parts(question: Question) -> tuple[str, ...]:
    """Returns what two questions share whose rows are the same things."""
    return (question.view, question.namespace, question.topic, question.subscription)
