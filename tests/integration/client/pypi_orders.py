"""Records of pulsar-client of PyPI with the names of those in test_interoperation.py."""

from __future__ import annotations

from pulsar import schema


class Line(schema.Record):  # type: ignore[misc]
    """A record in a record."""

    sku = schema.String(required=True)
    count = schema.Integer(required=True)


class Order(schema.Record):  # type: ignore[misc]
    """A record with a field that may be null."""

    customer = schema.String(required=True)
    price = schema.Double(required=True)
    lines = schema.Array(Line(), required=True)
    note = schema.String(required_default=True)


ORDERS = [
    Order(
        customer="größe", price=1.5, lines=[Line(sku="a", count=1), Line(sku="b", count=-2)], note="中文 🚀"
    ),
    Order(customer="", price=-0.0, lines=[], note=None),
]
