"""Fencing of a ledger's last ensemble, which also returns its last add confirmed.

Once enough bookies refuse the old writer that no write set has Qa left, it confirms nothing any more. The
same bookies hold every entry that it did confirm: the forward read begins at their highest LAC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.common.errors import NotEnoughBookies
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_client import BookieClient, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, Code, LedgerState
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.striping import Striping

log = get_logger(__name__)


async def fence_ensemble(
    ref: LedgerRef,
    striping: Striping,
    ensemble: Sequence[BookieClient],
    linger_s: float,
    *,
    enough_anyway: bool = False,
) -> dict[int, LedgerState]:
    """Fences every position; returns the answers of durably fenced bookies, by position.

    Waits until they are enough, and then up to `linger_s` for the others, whose answers are optional. Raises
    NotEnoughBookies if too few can be fenced, unless they are `enough_anyway`: an operator confirmed that the
    old writer is gone.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(client.fence(ref)) for client in ensemble]
    states: dict[int, LedgerState] = {}
    reasons: dict[str, str] = {}
    heard: set[int] = set()
    deadline: float | None = None
    try:
        while len(heard) < len(tasks):
            pending = [task for position, task in enumerate(tasks) if position not in heard]
            timeout = None if deadline is None else max(deadline - loop.time(), 0)
            await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for position, task in enumerate(tasks):
                if position in heard or not task.done():
                    continue
                heard.add(position)
                bookie_id = ensemble[position].bookie_id
                try:
                    state = task.result()
                except BookieUnreachable as error:
                    reasons[bookie_id] = str(error)
                    continue
                if state.code == OK and state.fenced:
                    states[position] = state
                else:
                    reasons[bookie_id] = f"{Code.Name(state.code)} {state.reason}"
            if deadline is None:
                if striping.leaves_no_ack_quorum(states):
                    deadline = loop.time() + linger_s
            elif loop.time() >= deadline:
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not enough_anyway and not striping.leaves_no_ack_quorum(states):
        raise NotEnoughBookies(
            f"ledger {ref.id} can't be recovered now: {len(states)} of {len(ensemble)} bookies are fenced, "
            f"which leaves an ack quorum of {striping.ack_quorum} to its old writer. The others: {reasons}"
        )
    if reasons:
        log.warning("not every bookie could be fenced, enough were", ledger=ref.id, others=reasons)
    return states
