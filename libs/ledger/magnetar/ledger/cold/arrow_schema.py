"""The Arrow schema of COLUMNS. Needs pyarrow: `magnetar-ledger[cold]`."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from magnetar.ledger.cold.columns import COLUMNS, ColumnType

_TYPES: Final[dict[ColumnType, Any]] = {
    ColumnType.INT64: pa.int64(),
    ColumnType.INT32: pa.int32(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.STRING: pa.string(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.MAP: pa.map_(pa.string(), pa.string()),
}

ARROW_SCHEMA: Final = pa.schema(
    [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in COLUMNS]
)
"""Columns of every part, in this order. Column descriptions are left out, since every object would repeat
them.
"""
