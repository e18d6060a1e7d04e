"""Routes of orphans: unreferenced metadata, listed and cleared."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import require_leader
from magnetar.broker.orphans.orphan import KINDS, Orphan
from magnetar.common.security.authorization.operations import Operation

PATH: Final = "/admin/magnetar/v1/orphans"


async def _list(call: Call) -> web.Response:
    require_leader(call, "the scan for orphans")
    orphans = call.broker.orphans
    if call.flag("look") or not orphans.looked_ms:
        await orphans.look()
    found = [
        {
            "kind": each.orphan.kind,
            "key": each.orphan.key,
            "what": each.orphan.what,
            "reason": each.orphan.reason,
            "bytes": each.orphan.byte_count,
            "since": each.since_ms,
            "settled": orphans.is_settled(each),
            "askFirst": each.orphan.ask_first,
        }
        for each in orphans.suspects
    ]
    return answer(
        {
            "orphans": found,
            "bytes": sum(each.orphan.byte_count for each in orphans.suspects),
            "lookedAt": orphans.looked_ms,
            "truncated": orphans.truncated,
            "clearing": orphans.halted is None,
            **({} if orphans.halted is None else {"halted": orphans.halted}),
        }
    )


async def _clear(call: Call) -> web.Response:
    require_leader(call, "the scan for orphans")
    orphans = call.broker.orphans
    kind = call.request.query.get("kind")
    if kind is not None and kind not in KINDS:
        raise Refused(412, f"{kind!r} is not a kind of orphan: use one of {', '.join(KINDS)}")
    kinds = KINDS if kind is None else (kind,)
    await orphans.look()
    cleared: list[Orphan]
    failed: list[Orphan] = []
    dry_run = call.flag("dryRun", default=True)
    if dry_run:
        cleared = orphans.settled(kinds)
    else:
        cleared, failed = await orphans.clear(kinds, asked=True)
    return answer(
        {
            "dryRun": dry_run,
            "cleared": [each.key for each in cleared],
            "failed": [each.key for each in failed],
        }
    )


ROUTES: Final = [
    Route(
        object="orphans",
        method="GET",
        path=PATH,
        handler=_list,
        summary="List orphaned metadata found by the last scan; with `look`, scan now.",
        query=("look:boolean=false",),
        answer="Orphans",
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="orphans",
        method="POST",
        path=PATH,
        handler=_clear,
        summary="Scan for orphaned metadata and delete what was orphaned for long enough; only list it "
        "unless `dryRun` is false.",
        query=("dryRun:boolean=true", "kind:OrphanKind"),
        answer="OrphansCleared",
        errors={412: "unknown kind of orphan"},
        operation=Operation.SUPER_USER,
    ),
]
