"""Why entries of a Key_Shared subscription wait, as reasons: made on request only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.broker.dispatch.eligibility import IDLE_SHOWN_MAX, Code, reason
from magnetar.broker.dispatch.key_shared.draining import DrainingSlot
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.key_shared.waiting_entries import WaitingEntries, unpack


def waits_for_owner(consumer: Consumer, waiting: WaitingEntries, held: Reason) -> Reason:
    """Returns why entries wait for the consumer that owns their slots, which `held` holds back."""
    oldest = waiting.oldest
    assert oldest is not None, "entries wait"
    ledger_id, entry_id, slot = unpack(oldest)
    return reason(
        Code.KEY_BLOCKED,
        f"{len(waiting)} entries from {ledger_id}:{entry_id} on wait for consumer {consumer.name}, which has "
        f"their keys: {held.text}",
        since_ms=held.since_ms,
        consumer=consumer.name,
        address=consumer.peer.address,
        entries=len(waiting),
        message=f"{ledger_id}:{entry_id}",
        slot=slot,
        cause=str(held.code),
    )


def by_holder(
    draining: Mapping[int, DrainingSlot[Consumer]],
) -> Sequence[tuple[Consumer, Sequence[int]]]:
    """Returns the first of these slots, in all IDLE_SHOWN_MAX, with the consumers that they wait for."""
    found: dict[Consumer, list[int]] = {}
    for slot in sorted(draining)[:IDLE_SHOWN_MAX]:
        found.setdefault(draining[slot].holder, []).append(slot)
    return list(found.items())


def waits_for_acks(
    slot: int, draining: DrainingSlot[Consumer], entries: int, first: tuple[int, int] | None
) -> Reason:
    """Returns why `entries` entries of a slot wait until its previous owner has acknowledged; `first` is the
    oldest entry that it holds.
    """
    holder = draining.holder
    message = None if first is None else f"{first[0]}:{first[1]}"
    return reason(
        Code.KEY_BLOCKED,
        f"{entries} entries of slot {slot} wait until consumer {holder.name} has acknowledged the "
        f"{draining.unacked} that it holds of the slot, the oldest {message}",
        since_ms=draining.since_ms,
        consumer=holder.name,
        address=holder.peer.address,
        entries=entries,
        unacked=draining.unacked,
        message=message,
        slot=slot,
        cause="unacknowledged",
    )


def unowned_slots(slots: Sequence[int], entries: int) -> Reason:
    """Returns that no consumer has these slots, which happens where consumers choose theirs."""
    return reason(
        Code.KEY_UNOWNED,
        f"{entries} entries are in {len(slots)} slots that no consumer has chosen",
        entries=entries,
        slots=sorted(slots)[:IDLE_SHOWN_MAX],
    )
