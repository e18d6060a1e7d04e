"""Choice of bookies for a new ledger, or for a position in an ensemble.

`choose_ensemble` and `choose_replacement` are pure: candidates in, choice out, with randomness from an rng.
Bookies of one rack fail together, so every write set (Qw neighbors around the ring of the ensemble) is spread
over racks as far as possible. Within that the choice is random, weighted by free space. Writers use
`Placement`, which tracks registered, writable and quarantined bookies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from magnetar.common.errors import NotEnoughBookies
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.quarantine import Quarantine
from magnetar.ledger.quorum.striping import Striping
from prometheus_client import Counter

log = get_logger(__name__)

WEIGHT_RATIO_MAX: Final = 3.0
"""Maximum weight of a bookie relative to the median, however much free space it has."""

TRIES: Final = 8
"""Attempts at a random choice, which can fail and succeed on repetition."""

FALLBACKS = Counter(
    "magnetar_placement_fallbacks",
    "Ensembles that could not be chosen as wanted: in fewer racks, or with a quarantined bookie.",
    ["kind"],
    registry=REGISTRY,
)
begin_at_zero(FALLBACKS, "racks", "quarantined")


class Candidate(Protocol):
    """A bookie that accepts new fragments."""

    @property
    def bookie_id(self) -> str: ...
    @property
    def rack(self) -> str:
        """The bookie's rack; bookies in one rack fail together. Empty if unknown, which counts as a rack of
        its own kind.
        """
        ...

    @property
    def free_bytes(self) -> int: ...
    @property
    def started_ms(self) -> int:
        """The time at which its process began to serve."""
        ...


class BookieRegistryView(Protocol):
    """The registered bookies; `bookie_protocol.registry.BookieRegistry` follows them in metadata."""

    def writable(self) -> Sequence[Candidate]:
        """Returns the registered bookies that are not read-only, in id order."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` on the loop when a bookie registers, leaves or changes."""
        ...


def choose_ensemble(
    candidates: Sequence[Candidate], striping: Striping, racks_min: int, rng: random.Random
) -> list[str] | None:
    """Chooses E different bookies, position by position, spreading each write set over as many racks as
    possible.

    Returns None with fewer than E candidates. Check `racks_min` with `racks_of`.
    """
    if len(candidates) < striping.ensemble_size:
        return None
    racks = {each.bookie_id: each.rack for each in candidates}
    wanted = min(racks_min, striping.write_quorum, len(set(racks.values())))
    best: list[str] = []
    for _ in range(TRIES):
        chosen = _choose_once(candidates, striping, rng)
        if not best or racks_of(chosen, striping, racks) > racks_of(best, striping, racks):
            best = chosen
        if racks_of(best, striping, racks) >= wanted:
            break
    return best


def _choose_once(candidates: Sequence[Candidate], striping: Striping, rng: random.Random) -> list[str]:
    size = striping.ensemble_size
    chosen: list[Candidate | None] = [None] * size
    weights = _weights(candidates)
    left = dict(zip((each.bookie_id for each in candidates), candidates, strict=True))
    for position in range(size):
        neighbors = [chosen[i] for i in _neighbors(striping, position)]
        racks = {each.rack for each in neighbors if each is not None}
        chosen[position] = found = _pick(list(left.values()), weights, racks, rng)
        del left[found.bookie_id]
    return [each.bookie_id for each in chosen if each is not None]


def choose_replacement(
    candidates: Sequence[Candidate],
    ensemble: Sequence[str],
    position: int,
    striping: Striping,
    racks: dict[str, str],
    rng: random.Random,
) -> str | None:
    """Chooses a bookie for one position, preferably in a rack that its write sets do not use.

    `racks` maps the ensemble's members to racks as far as known. Returns None without a candidate.
    """
    free = free_candidates(candidates, ensemble, position)
    if not free:
        return None
    used = {racks[ensemble[i]] for i in _neighbors(striping, position) if ensemble[i] in racks}
    return _pick(free, _weights(free), used, rng).bookie_id


def free_candidates(
    candidates: Sequence[Candidate], ensemble: Sequence[str], position: int
) -> list[Candidate]:
    """Returns the candidates that no other position of the ensemble has."""
    taken = {bookie_id for i, bookie_id in enumerate(ensemble) if i != position}
    return [each for each in candidates if each.bookie_id not in taken]


def racks_of(ensemble: Sequence[str], striping: Striping, racks: dict[str, str]) -> int:
    """Returns the number of racks of the least spread write set."""
    return min(
        len({racks.get(ensemble[position], "") for position in write_set})
        for write_set in striping.write_sets()
    )


def _neighbors(striping: Striping, position: int) -> list[int]:
    """Returns the other positions that share a write set with this one."""
    return sorted({i for each in striping.write_sets() if position in each for i in each} - {position})


def _weights(candidates: Sequence[Candidate]) -> dict[str, float]:
    free = sorted(each.free_bytes for each in candidates)
    median = max(free[len(free) // 2], 1)
    return {
        each.bookie_id: min(max(each.free_bytes / median, 1 / WEIGHT_RATIO_MAX), WEIGHT_RATIO_MAX)
        for each in candidates
    }


def _pick(
    candidates: Sequence[Candidate], weights: dict[str, float], racks: Collection[str], rng: random.Random
) -> Candidate:
    elsewhere = [each for each in candidates if each.rack not in racks]
    among = elsewhere or candidates
    return rng.choices(among, [weights[each.bookie_id] for each in among])[0]


class Placement:
    """Chooses among running bookies, and logs when the configured spread was impossible."""

    __slots__ = ("_config", "_registry", "_rng", "_started", "quarantine")

    def __init__(
        self, registry: BookieRegistryView, quarantine: Quarantine, rng: random.Random, config: QuorumConfig
    ) -> None:
        self.quarantine = quarantine
        self._registry = registry
        self._rng = rng
        self._config = config
        self._started = {each.bookie_id: each.started_ms for each in registry.writable()}
        registry.on_change(self._bookies_changed)

    @property
    def writable(self) -> int:
        """Number of bookies that accept new fragments, including quarantined ones."""
        return len(self._registry.writable())

    def writable_ids(self) -> list[str]:
        """Returns the ids of those bookies."""
        return [each.bookie_id for each in self._registry.writable()]

    def new_ensemble(self, striping: Striping) -> list[str]:
        """Chooses bookies for a new ledger. Raises NotEnoughBookies.

        Quarantined bookies are used only if there are too few others.
        """
        config, size = self._config, striping.ensemble_size
        writable = list(self._candidates())
        healthy = [each for each in writable if each.bookie_id not in self.quarantine]
        among = healthy
        if len(healthy) < size <= len(writable):
            FALLBACKS.labels("quarantined").inc()
            log.warning("a new ledger needs quarantined bookies", healthy=len(healthy), ensemble=size)
            among = writable
        chosen = choose_ensemble(among, striping, config.racks_min, self._rng)
        if chosen is None:
            raise NotEnoughBookies(
                f"a ledger needs {size} bookies and {len(writable)} are up and writable: start more bookies, "
                f"or lower the ensemble size and quorums"
            )
        racks = {each.bookie_id: each.rack for each in among}
        if not self._spread(chosen, striping, racks, "a new ledger"):
            raise NotEnoughBookies(
                f"the bookies that are up do not allow {config.racks_min} racks for each entry of a ledger: "
                f"start bookies in other racks, or set bookkeeperClientEnforceMinNumRacksPerWriteQuorum=false"
            )
        return chosen

    def replacement(
        self, ensemble: Sequence[str], position: int, striping: Striping, *, excluded: Collection[str] = ()
    ) -> str | None:
        """Chooses a bookie for a position; may be the current one if it is up and healthy.

        Returns None without a candidate: other members of the ensemble and quarantined bookies are excluded.
        """
        healthy = [
            each
            for each in self._candidates()
            if each.bookie_id not in self.quarantine and each.bookie_id not in excluded
        ]
        others = [each for each in healthy if each.bookie_id != ensemble[position]]
        racks = {each.bookie_id: each.rack for each in self._registry.writable()}
        for among in (others, healthy):
            found = choose_replacement(among, ensemble, position, striping, racks, self._rng)
            if found is not None:
                after = [found if i == position else each for i, each in enumerate(ensemble)]
                return found if self._spread(after, striping, racks, "a replacement") else None
        return None

    def _spread(self, chosen: list[str], striping: Striping, racks: dict[str, str], what: str) -> bool:
        """Checks the rack spread; returns False only if too few racks are forbidden."""
        config = self._config
        wanted = min(config.racks_min, striping.write_quorum)
        if not config.rack_aware or racks_of(chosen, striping, racks) >= wanted:
            return True
        if config.enforce_racks_min:
            return False
        if len(set(racks.values()) - {""}) > 1:
            FALLBACKS.labels("racks").inc()
            log.warning("fewer racks than wanted", what=what, wanted=wanted, bookies=chosen)
        return True

    def _bookies_changed(self) -> None:
        for each in self._registry.writable():
            if self._started.get(each.bookie_id, each.started_ms) != each.started_ms:
                self.quarantine.lift(each.bookie_id)
            self._started[each.bookie_id] = each.started_ms

    def _candidates(self) -> Sequence[Candidate]:
        candidates = self._registry.writable()
        return candidates if self._config.rack_aware else [_Anywhere(each) for each in candidates]


class _Anywhere:
    """A candidate without a rack constraint."""

    __slots__ = ("bookie_id", "free_bytes", "started_ms")

    rack: Final = ""

    def __init__(self, candidate: Candidate) -> None:
        self.bookie_id = candidate.bookie_id
        self.free_bytes = candidate.free_bytes
        self.started_ms = candidate.started_ms
