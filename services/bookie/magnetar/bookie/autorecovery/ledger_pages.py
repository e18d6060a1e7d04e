"""The metadata of all ledgers, page by page: memory does not grow with their number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.common.metadata.keys import ID_DIGITS, Keys, encode_id
from magnetar.common.metadata.store import Listing, MetadataStore
from magnetar.common.metadata.values import Counter, decode

PAGE_DIGITS: Final = 4
"""A page holds the ledgers whose ids differ in the last so many digits: at most ten thousand."""


async def ledger_pages(metadata: MetadataStore, keys: Keys) -> AsyncIterator[Listing]:
    """The ledgers that exist, by id; each page is of one revision, a later one's is not lower.

    A ledger that is created meanwhile may be missed. Raises MetadataError.
    """
    found = await metadata.get(keys.ledger_id_counter)
    end = 0 if found is None else decode(Counter, found.value).next
    for first in range(0, end, 10**PAGE_DIGITS):
        block = encode_id(first)[: ID_DIGITS - PAGE_DIGITS]
        page = await metadata.children(f"{keys.ledgers_prefix}{block}")
        if page.items:
            yield page
