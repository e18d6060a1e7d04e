"""Filters that Spark pushes down: they exclude topics, times and row groups without wanted rows.

They are hints only: Spark evaluates every filter once more, so what is not understood here costs time, not
correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.spark.rows.columns import MESSAGE_COLUMNS, TOPIC
from magnetar.spark.source.reading_plan import TimeBounds
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_STORED: Final = frozenset(column.name for column in MESSAGE_COLUMNS) - {TOPIC}
_JOINED: Final = frozenset({"payload", "raw_reason"})
_TIME: Final = "broker_publish_time"


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters of one scan; all of them hold."""

    filters: tuple[Filter, ...] = ()

    def may_hold_topic(self, topic: str) -> bool:
        """Return whether rows of a topic can be wanted."""
        for each in self._of(TOPIC):
            if isinstance(each, EqualTo | EqualNullSafe) and each.value != topic:
                return False
            if isinstance(each, In) and topic not in each.value:
                return False
        return True

    def times(self, bounds: TimeBounds) -> TimeBounds:
        """Narrower bounds, whole milliseconds around those of the filters."""
        start, end = bounds.start_ms, bounds.end_ms
        for each in self._of(_TIME):
            value = getattr(each, "value", None)
            if not isinstance(value, datetime):
                continue
            at_ms = int(_aware(value).timestamp() * 1000)
            if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                start = at_ms - 1 if start is None else max(start, at_ms - 1)
            if isinstance(each, EqualTo | LessThan | LessThanOrEqual):
                end = at_ms + 2 if end is None else min(end, at_ms + 2)
        return replace(bounds, start_ms=start, end_ms=end)

    def row_groups(self, *, joins: bool) -> Callable[[Any], bool] | None:
        """A test of a row group's metadata for matching rows; None without an applicable filter.

        `joins`: chunks are put together, which makes columns that are not as they are stored.
        """
        stored = _STORED - _JOINED if joins else _STORED
        known = [each for each in self.filters if _column(each) in stored]
        return RowGroupTest(tuple(known)) if known else None

    def _of(self, name: str) -> Iterable[Filter]:
        return (each for each in self.filters if _column(each) == name)


@dataclass(frozen=True, slots=True)
class RowGroupTest:
    """Excludes row groups by the statistics of columns; pickles."""

    filters: tuple[Filter, ...]

    def __call__(self, group: Any) -> bool:
        columns = {group.column(index).path_in_schema: index for index in range(group.num_columns)}
        return all(self._may_match(each, group, columns) for each in self.filters)

    def _may_match(self, each: Filter, group: Any, columns: Mapping[str, int]) -> bool:
        index = columns.get(_column(each))
        statistics = None if index is None else group.column(index).statistics
        if statistics is None:
            return True
        if statistics.has_null_count:
            all_null = statistics.null_count == group.num_rows
            if isinstance(each, IsNull):
                return bool(statistics.null_count)
            if all_null:
                return isinstance(each, EqualNullSafe) and each.value is None
        if not statistics.has_min_max:
            return True
        try:
            return _overlaps(each, _plain(statistics.min), _plain(statistics.max))
        except TypeError:
            return True


def _overlaps(each: Filter, low: Any, high: Any) -> bool:
    """Return whether a value between the two may satisfy the filter."""
    if isinstance(each, IsNotNull):
        return True
    if isinstance(each, EqualTo):
        return bool(low <= _plain(each.value) <= high)
    if isinstance(each, EqualNullSafe):
        return each.value is None or bool(low <= _plain(each.value) <= high)
    if isinstance(each, In):
        return any(low <= _plain(value) <= high for value in each.value)
    if isinstance(each, GreaterThan):
        return bool(high > _plain(each.value))
    if isinstance(each, GreaterThanOrEqual):
        return bool(high >= _plain(each.value))
    if isinstance(each, LessThan):
        return bool(low < _plain(each.value))
    if isinstance(each, LessThanOrEqual):
        return bool(low <= _plain(each.value))
    if isinstance(each, StringStartsWith):
        prefix = each.value.encode()
        return bool(low[: len(prefix)] <= prefix <= high[: len(prefix)])
    return True


def _plain(value: Any) -> Any:
    """Times as aware ones; text by its bytes, which is how Parquet orders it."""
    if isinstance(value, datetime):
        return _aware(value)
    return value.encode() if isinstance(value, str) else value


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _column(each: Filter) -> str:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return path[0] if len(path) == 1 else ""
