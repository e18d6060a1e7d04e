"""Bundles in paths."""

from __future__ import annotations

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.common.cluster.bundles import bundles_of
from magnetar.common.errors import InvalidName
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.bundle_range import BundleRange


def bundle_in(call: Call, namespace: Namespace) -> BundleRange:
    """Returns the range in the path, which must be a bundle of the namespace. Raises Refused (412)."""
    asked = bundle_range(call.names["bundle"])
    name = f"{call.names['tenant']}/{call.names['namespace']}"
    for bundle in bundles_of(namespace):
        if bundle == asked:
            return bundle
        if bundle.lower == asked.lower:
            raise Refused(
                412,
                f"Invalid upper boundary for bundle {name}/{asked}. Expected upper boundary of "
                f"{name}/{bundle}",
            )
    raise Refused(412, f"Invalid lower boundary for bundle {name}/{asked}: no bundle starts there")


def bundle_range(text: str) -> BundleRange:
    """Parses a range, with or without leading zeros. Raises Refused (412)."""
    try:
        return BundleRange.parse(_padded(text))
    except InvalidName as error:
        raise Refused(412, f"Invalid bundle range: {error}") from error


def _padded(text: str) -> str:
    ends = text.lower().split("_")
    if not all(end.startswith("0x") and 2 < len(end) <= 10 for end in ends):
        return text
    return "_".join(f"0x{end[2:]:0>8}" for end in ends)
