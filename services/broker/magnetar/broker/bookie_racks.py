"""Racks of bookies, as operators configure them: stored in metadata and used by bookie placement."""

from __future__ import annotations

from magnetar.broker.stored_values import change_value, delete_value, read_value
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Versioned
from magnetar.common.metadata.values import BookieRack, BookieRegistration, decode


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
