"""Racks of bookies, as operators configure them: stored in metadata and used by bookie placement."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.stored_values import change_value, delete_value, read_value
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Versioned
from magnetar.common.metadata.values import BookieRack, BookieRegistration, Decommission, decode


@dataclass(frozen=True, slots=True)
class BookieStatus:
    """A bookie as metadata has it."""

    bookie_id: str
    state: str
    """up, read-only, down, decommissioning, or decommissioned: up, and without an identity."""
    address: str = ""
    rack: str = ""
    free_bytes: int = -1
    """When it registered or last changed its mode; -1 while it is down."""
    started_ms: int = 0
    ledgers_to_move: int = 0
    """Ledgers that a decommission has not moved yet, at its last audit."""


class BookieRacks:
    """Reads and writes the racks of bookies. Reads go to the store, so an operator sees the latest change."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys

    async def bookies(self) -> list[tuple[str, str]]:
        """Returns (id, address) of every bookie that has an identity or is up, by id; address "" for one that
        is down.
        """
        keys = self._keys
        found = {keys.cookie_of(item.key): "" for item in await self._items(keys.cookies_prefix)}
        for item in await self._items(keys.bookies_prefix):
            found[keys.bookie_id_of(item.key)] = decode(BookieRegistration, item.value).address
        return sorted(found.items())

    async def statuses(self) -> list[BookieStatus]:
        """Returns the status of every bookie with an identity, a registration or a request to decommission
        it, by id. Raises MetadataError.
        """
        keys = self._keys
        identities = {keys.cookie_of(item.key) for item in await self._items(keys.cookies_prefix)}
        up = {
            keys.bookie_id_of(item.key): decode(BookieRegistration, item.value)
            for item in await self._items(keys.bookies_prefix)
        }
        leaving = {
            keys.decommission_of(item.key): decode(Decommission, item.value)
            for item in await self._items(keys.decommissions_prefix)
        }
        found = []
        for bookie_id in sorted({*identities, *up, *leaving}):
            its, request = up.get(bookie_id), leaving.get(bookie_id)
            if request is not None:
                state = "decommissioning"
            elif its is None:
                state = "down"
            elif bookie_id not in identities:
                state = "decommissioned"
            else:
                state = "read-only" if its.read_only else "up"
            ledgers = request.ledgers if request is not None and request.audited_ms else 0
            if its is None:
                found.append(BookieStatus(bookie_id, state, ledgers_to_move=ledgers))
            else:
                shown = (its.address, its.rack, its.free_bytes, its.started_ms)
                found.append(BookieStatus(bookie_id, state, *shown, ledgers))
        return found

    async def all(self) -> list[BookieRack]:
        """Returns all configured racks by bookie id; the bookies need not exist."""
        return [decode(BookieRack, item.value) for item in await self._items(self._keys.bookie_racks_prefix)]

    async def get(self, bookie_id: str) -> BookieRack | None:
        """Returns the rack of a bookie; None when it is not configured."""
        return await read_value(self._metadata, self._keys.bookie_rack(bookie_id), BookieRack)

    async def set(self, rack: BookieRack) -> None:
        """Stores the rack of a bookie. Raises MetadataError."""

        def edit(stored: BookieRack) -> None:
            stored.CopyFrom(rack)

        await change_value(self._metadata, self._keys.bookie_rack(rack.bookie_id), BookieRack, edit)

    async def delete(self, bookie_id: str) -> bool:
        """Removes the rack of a bookie; returns False when it has none."""
        return await delete_value(self._metadata, self._keys.bookie_rack(bookie_id))

    async def _items(self, prefix: str) -> list[Versioned]:
        return (await self._metadata.children(prefix)).items
