"""The metadata of all ledgers in pages: memory use does not grow with their number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.common.metadata.keys import ID_DIGITS, Keys, encode_id
from magnetar.common.metadata.store import Listing, MetadataStore
from magnetar.common.metadata.values import Counter, decode

PAGE_DIGITS: Final = 4
"""Digits of the ledger id that vary within a page: at most ten thousand ledgers."""


async def ledger_pages(metadata: MetadataStore, keys: Keys) -> AsyncIterator[Listing]:
    """Yields the existing ledgers by id; each page is read at one revision, later pages never at a lower one.

    Ledgers created meanwhile may be missed. Raises MetadataError.
    """
    found = await metadata.get(keys.ledger_id_counter)
    end = 0 if found is None else decode(Counter, found.value).next
    for first in range(0, end, 10**PAGE_DIGITS):
        block = encode_id(first)[: ID_DIGITS - PAGE_DIGITS]
        page = await metadata.children(f"{keys.ledgers_prefix}{block}")
        if page.items:
            yield page
