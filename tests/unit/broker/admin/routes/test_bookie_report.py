"""Bookies over HTTP: states, space, recovery, and ledgers, from metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from magnetar.common.metadata.values import (
    BookieCookie,
    BookieRegistration,
    Counter,
    Decommission,
    Leader,
    LedgerMetadata,
    UnderReplicated,
    encode,
)

from tests.unit.broker.admin.fake_broker import KEYS

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

PATH = "/admin/magnetar/v1/bookies"


def test_bookies_are_listed_with_state_space_and_recovery(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert json.loads((await http.get(PATH))[1])["bookies"] == []
        for name in ("bk1:3181", "bk2:3181", "bk3:3181"):
            await http.store.put(KEYS.cookie(name), encode(BookieCookie(bookie_id=name)))
        up = BookieRegistration(
            address="10.0.0.1:3181", free_bytes=9, started_ms=4, rack="/r", read_only=True
        )
        await http.store.put(KEYS.bookie("bk1:3181"), encode(up))
        leaving = Decommission(bookie_id="bk3:3181", ledgers=7, audited_ms=1)
        await http.store.put(KEYS.decommission("bk3:3181"), encode(leaving))
        await http.store.put(KEYS.auditor, encode(Leader(id="bk1:3181", since_ms=11)))
        for ledger in (5, 6):
            mark = UnderReplicated(missing_bookie_ids=["bk2:3181"], created_ms=3)
            await http.store.put(KEYS.under_replicated(ledger), encode(mark))
        await http.store.put(KEYS.replication_lock(5), encode(Leader(id="bk1:3181")))

        found = json.loads((await http.get(f"{PATH}?limit=1"))[1])
        assert [(each["bookieId"], each["state"]) for each in found["bookies"]] == [
            ("bk1:3181", "read-only"),
            ("bk2:3181", "down"),
            ("bk3:3181", "decommissioning"),
        ]
        first, second, third = found["bookies"]
        assert (first["freeBytes"], first["rack"], first["started"]) == (9, "/r", 4)
        assert (second["freeBytes"], third["ledgersToMove"]) == (-1, 7)
        assert (found["auditor"], found["auditorSince"]) == ("bk1:3181", 11)
        assert (found["underReplicated"], found["inProgress"]) == (2, 1)
        assert found["underReplicatedLedgers"] == [
            {"ledgerId": 5, "missing": ["bk2:3181"], "since": 3, "copiedBy": "bk1:3181"}
        ]
        assert (await http.get(f"{PATH}?limit=1001"))[0] == 412

    serving(body)


def test_ledgers_are_counted_by_bookie(serving: Serving) -> None:
    async def body(http: Http) -> None:
        closed = LedgerMetadata(state=LedgerMetadata.CLOSED, last_entry_id=9)
        closed.fragments.add(first_entry_id=0, bookie_ids=["a", "b"])
        closed.fragments.add(first_entry_id=4, bookie_ids=["a", "c"])
        closed.gaps.add(bookie_id="c", first_entry_id=5, last_entry_id=6)
        written = LedgerMetadata(state=LedgerMetadata.OPEN)
        written.fragments.add(first_entry_id=0, bookie_ids=["a", "b"])
        for ledger, value in ((1, closed), (2, written)):
            await http.store.put(KEYS.ledger(ledger), encode(value))
        await http.store.put(KEYS.ledger_id_counter, encode(Counter(next=3)))
        found = json.loads((await http.get(f"{PATH}/ledgers"))[1])
        assert (found["ledgers"], found["complete"]) == (2, True)
        assert found["bookies"] == {
            "a": {"ledgers": 2, "fragments": 3, "openFragments": 1, "gaps": 0},
            "b": {"ledgers": 2, "fragments": 2, "openFragments": 1, "gaps": 0},
            "c": {"ledgers": 1, "fragments": 1, "openFragments": 0, "gaps": 1},
        }

    serving(body)
