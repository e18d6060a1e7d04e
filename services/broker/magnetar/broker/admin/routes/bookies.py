"""Routes of bookies and their racks."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import NAME_CHARS_MAX, Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.common.metadata.values import BookieRack
from magnetar.common.security.authorization.operations import Operation

_BOOKIE_ID: Final = re.compile(r"[-=:.\w\[\]]+", re.ASCII)


async def _all(call: Call) -> web.Response:
    bookies = await call.broker.bookie_racks.bookies()
    return answer({"bookies": [{"bookieId": bookie_id} for bookie_id, _ in bookies]})


async def _racks(call: Call) -> web.Response:
    groups: dict[str, dict[str, Any]] = {}
    for rack in await call.broker.bookie_racks.all():
        groups.setdefault(rack.group, {})[rack.bookie_id] = _json(rack)
    return answer(dict(sorted(groups.items())))


async def _rack(call: Call) -> web.Response:
    bookie_id = call.names["bookie"]
    rack = await call.broker.bookie_racks.get(bookie_id)
    if rack is None:
        raise Refused(404, f"Bookie rack placement configuration not found: {bookie_id}")
    return answer(_json(rack))


async def _set_rack(call: Call) -> web.Response:
    bookie_id, group = call.names["bookie"], call.request.query.get("group")
    if _BOOKIE_ID.fullmatch(bookie_id) is None or len(bookie_id) > NAME_CHARS_MAX:
        raise Refused(412, f"{bookie_id[:80]!r} is not a valid bookie id; use address:port or the bookieId")
    if not group or len(group) > NAME_CHARS_MAX:
        raise Refused(412, "Bookie 'group' parameters is missing")
    given = await call.json()
    if not isinstance(given, dict):
        raise Refused(400, "the body must be an object with rack and hostname")
    rack, hostname = _text(given, "rack"), _text(given, "hostname")
    if not rack.strip("/"):
        raise Refused(412, "rack name is invalid, it should not be null, empty or '/'")
    await call.broker.bookie_racks.set(
        BookieRack(bookie_id=bookie_id, group=group, rack=rack, hostname=hostname)
    )
    return done()


async def _delete_rack(call: Call) -> web.Response:
    bookie_id = call.names["bookie"]
    if not await call.broker.bookie_racks.delete(bookie_id):
        raise Refused(404, f"Bookie address not found: {bookie_id}")
    return done()


def _json(rack: BookieRack) -> dict[str, Any]:
    return {"rack": rack.rack, **({"hostname": rack.hostname} if rack.hostname else {})}


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if isinstance(value, dict | list):
        raise Refused(400, f"{name} must be a string")
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    if len(text) > NAME_CHARS_MAX:
        raise Refused(412, f"{name} has at most {NAME_CHARS_MAX} characters")
    return text


_PATH: Final = "/admin/v2/bookies"
_RACK: Final = f"{_PATH}/racks-info/{{bookie}}"


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="bookies",
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        **more,
        operation=Operation.SUPER_USER,
    )


ROUTES: Final = [
    _route("GET", f"{_PATH}/all", _all, "List all bookies, available or not.", answer="BookiesClusterInfo"),
    _route(
        "GET",
        f"{_PATH}/racks-info",
        _racks,
        "Get the racks that were assigned to bookies, by group.",
        answer="Map<String, Map<String, BookieInfo>>",
    ),
    _route(
        "GET",
        _RACK,
        _rack,
        "Get the rack assigned to a bookie.",
        answer="BookieInfo",
        errors={404: "Bookie rack placement configuration not found"},
    ),
    _route(
        "POST",
        _RACK,
        _set_rack,
        "Assign a rack to a bookie; it overrides the rack that the bookie registered.",
        query=("group:String",),
        body="BookieInfo",
        status=204,
        errors={409: "concurrent modification", 412: "the group is missing; invalid rack name"},
    ),
    _route(
        "DELETE",
        _RACK,
        _delete_rack,
        "Remove the rack assigned to a bookie, so that the rack it registered applies.",
        status=204,
        errors={404: "Bookie address not found"},
    ),
]
