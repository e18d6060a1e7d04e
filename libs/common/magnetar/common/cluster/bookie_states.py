"""The bookies of a cluster and their states, from metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from magnetar.common.metadata.keys import Keys
    from magnetar.common.metadata.store import MetadataStore
    from magnetar.common.metadata.values import BookieMark, BookieRegistration, Decommission

State = Literal["up", "read-only", "down", "decommissioning", "decommissioned"]


@dataclass(frozen=True, slots=True)
class BookieState:
    """One bookie. `down`: it has data, and no registration."""

    bookie_id: str
    state: State
    registration: BookieRegistration | None = None
    """None while it is not up."""
    decommission: Decommission | None = None
    """The request to decommission it; None without one."""


async def bookie_states(metadata: MetadataStore, keys: Keys) -> list[BookieState]:
    """Return every bookie with an identity, a registration or a decommission request, by id."""
    from magnetar.common.metadata.values import BookieCookie, BookieRegistration, Decommission, decode

    cookies = {
        keys.cookie_of(item.key): decode(BookieCookie, item.value)
        for item in (await metadata.children(keys.cookies_prefix)).items
    }
    up = {
        keys.bookie_id_of(item.key): decode(BookieRegistration, item.value)
        for item in (await metadata.children(keys.bookies_prefix)).items
    }
    leaving = {
        keys.decommission_of(item.key): decode(Decommission, item.value)
        for item in (await metadata.children(keys.decommissions_prefix)).items
    }
    found = []
    for bookie_id in sorted({*cookies, *up, *leaving}):
        registration, request = up.get(bookie_id), leaving.get(bookie_id)
        state: State = "up"
        if request is not None:
            state = "decommissioning"
        elif registration is None:
            state = "down"
        elif bookie_id not in cookies:
            state = "decommissioned"
        elif registration.read_only:
            state = "read-only"
        found.append(BookieState(bookie_id, state, registration, request))
    return found


async def bookie_doubts(metadata: MetadataStore, keys: Keys) -> dict[str, BookieMark]:
    """Returns the marks of the bookies that may lack data, by id."""
    from magnetar.common.metadata.values import BookieMark, decode

    marks = {
        keys.bookie_of_mark(item.key): decode(BookieMark, item.value)
        for item in (await metadata.children(keys.bookie_marks_prefix)).items
    }
    return {bookie_id: mark for bookie_id, mark in marks.items() if mark.doubt}
