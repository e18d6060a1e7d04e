"""One record as a class of this client, as a pydantic model, and as a record of the PyPI client."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.client.schemas.records import Float, Int
from pulsar.schema import Array, Boolean, Bytes, CustomEnum, Double, Integer, Long, Map, Record, String
from pulsar.schema import Float as SingleFloat
from pydantic import BaseModel


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass
class Line:
    sku: str
    count: Int = 1


@dataclass
class Order:
    number: int
    count: Int
    customer: str
    paid: bool
    price: float
    weight: Float
    raw: bytes
    color: Color
    line: Line
    tags: list[str]
    lines: list[Line]
    prices: dict[str, float]
    note: str | None = None
    gift: Line | None = None
    limit: int | None = 7
    seen: list[str] = field(default_factory=list)


class LineModel(BaseModel):
    sku: str
    count: Int = 1


class OrderModel(BaseModel):
    number: int
    count: Int
    customer: str
    paid: bool
    price: float
    weight: Float
    raw: bytes
    color: Color
    line: LineModel
    tags: list[str]
    lines: list[LineModel]
    prices: dict[str, float]
    note: str | None = None
    gift: LineModel | None = None
    limit: int | None = 7
    seen: list[str] = []


class PypiLine(Record):  # type: ignore[misc]
    sku = String(required=True)
    count = Integer(required=True, default=1, required_default=True)


class PypiOrder(Record):  # type: ignore[misc]
    number = Long(required=True)
    count = Integer(required=True)
    customer = String(required=True)
    paid = Boolean(required=True)
    price = Double(required=True)
    weight = SingleFloat(required=True)
    raw = Bytes(required=True)
    color = CustomEnum(Color, required=True)
    line = PypiLine(required=True)
    tags = Array(String(required=True), required=True)
    lines = Array(PypiLine(required=True), required=True)
    prices = Map(Double(required=True), required=True)
    note = String()
    gift = PypiLine()
    limit = Long(default=7)
    seen = Array(String(required=True), required=True, default=[], required_default=True)


FIELDS: Final[dict[str, Any]] = {
    "number": 2**40,
    "count": -3,
    "customer": "Zoë",
    "paid": True,
    "price": 9.95,
    "weight": 0.5,
    "raw": b"\x00a",
    "color": Color.GREEN,
    "tags": ["a", "b"],
    "prices": {"EUR": 1.5},
    "note": "n",
    "limit": 9,
    "seen": ["s"],
}

ORDER: Final = Order(line=Line("one", 1), lines=[Line("two", 2)], gift=Line("three", 3), **FIELDS)
MODEL: Final = OrderModel(
    line=LineModel(sku="one", count=1),
    lines=[LineModel(sku="two", count=2)],
    gift=LineModel(sku="three", count=3),
    **FIELDS,
)
PYPI: Final = PypiOrder(
    line=PypiLine(sku="one", count=1),
    lines=[PypiLine(sku="two", count=2)],
    gift=PypiLine(sku="three", count=3),
    **FIELDS,
)
