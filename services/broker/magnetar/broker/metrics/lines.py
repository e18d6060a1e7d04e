"""Renders the lines of one metric after the other, for batches of topics or subscriptions.

Batches keep the work per line small: with ten thousand topics the page has half a million lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from magnetar.broker.metrics.topic_metrics import Metric, Number

T = TypeVar("T")

AT_ONCE: Final = 64
"""Objects in a batch: about 30 microseconds of work."""

Piece = tuple[list[str], Number]
"""Lines of a batch, and the sum of its values."""


class Rows(Generic[T]):
    """Topics or subscriptions in batches, with their label texts and those of their namespaces."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: list[tuple[list[T], list[str], list[str]]] = []

    def add(self, thing: T, labels: str, namespace: str) -> None:
        if not self._batches or len(self._batches[-1][0]) == AT_ONCE:
            self._batches.append(([], [], []))
        things, texts, namespaces = self._batches[-1]
        things.append(thing)
        texts.append(labels)
        namespaces.append(namespace)

    def lines(self, metric: Metric[T]) -> Iterator[Piece]:
        """Yields one line for each object, batch by batch."""
        name, more = metric.name, _more(metric)
        for things, texts, _ in self._batches:
            values = list(map(metric.value, things))
            pairs = zip(texts, values, strict=True)
            if metric.seldom:
                yield [f"{name}{{{text}{more}}} {value}\n" for text, value in pairs if value], sum(values)
            else:
                yield [f"{name}{{{text}{more}}} {value}\n" for text, value in pairs], sum(values)

    def lines_of_namespaces(self, metric: Metric[T]) -> Iterator[Piece]:
        """Yields one line for each namespace, after the last batch; skips metrics that cannot be summed."""
        totals: dict[str, Number] = {}
        for things, _, namespaces in self._batches:
            values = list(map(metric.value, things))
            for namespace, value in zip(namespaces, values, strict=True):
                totals[namespace] = totals.get(namespace, 0) + value
            yield [], sum(values)
        if metric.adds_up:
            for lines in lines_of(metric.name, totals, _more(metric)):
                yield lines, 0

    def pieces(self, metrics: Sequence[Metric[T]], *, each: bool) -> Iterator[tuple[str, Piece]]:
        """Returns the values by metric name, of each object or summed by namespace."""
        for metric in metrics:
            shown = each or metric.adds_up
            yield metric.name, ([metric.head] if shown else [], 0)
            for piece in self.lines(metric) if each else self.lines_of_namespaces(metric):
                yield metric.name, piece


def lines_of(name: str, values: Mapping[str, Number], more: str = "") -> Iterator[list[str]]:
    """Yields one line for each label text, in batches; `more`: labels added to all of them."""
    pairs = list(values.items())
    for at in range(0, len(pairs), AT_ONCE):
        yield [f"{name}{{{text}{more}}} {value}\n" for text, value in pairs[at : at + AT_ONCE]]


def _more(metric: Metric[T]) -> str:
    return f",{metric.label}" if metric.label else ""
