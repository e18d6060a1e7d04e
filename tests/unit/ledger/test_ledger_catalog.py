"""Ledger ids, while several processes create ledgers over the same metadata."""

from __future__ import annotations

import random

from magnetar.common.metadata.store import Versioned
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.simulation.power_loss import KEYS


async def created(catalog: LedgerCatalog) -> LedgerRef:
    value = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, last_entry_id=-1)
    ref, _ = await catalog.create(value, None)
    return ref


def test_an_id_that_another_process_took_and_gave_up_meanwhile_is_not_given_again() -> None:
    """The ledger's own key is free again; the counter alone knows that the id was used."""
    loop = SimLoop(1)

    async def main() -> None:
        server = SimMetadataServer()
        stores = [SimMetadataStore(server, random.Random(number)) for number in range(2)]
        one, other = (LedgerCatalog(store, KEYS, SimClock(loop), random.Random(7)) for store in stores)
        first = await created(one)
        get, given = stores[0].get, [first.id, (await created(other)).id]

        async def get_then_stand_still(key: str) -> Versioned | None:
            found = await get(key)
            if key == KEYS.ledger_id_counter and len(given) < 5:
                ref = await created(other)
                await other.delete(ref, ())
                given.append(ref.id)
            return found

        stores[0].get = get_then_stand_still  # type: ignore[method-assign]
        given.append((await created(one)).id)
        given.append((await created(other)).id)
        assert given == sorted(set(given)), "ids only grow"

    run(loop, main())
