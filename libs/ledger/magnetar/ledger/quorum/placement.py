"""Which bookies a new ledger, or a gap in an ensemble, gets.

`choose_ensemble` and `choose_replacement` are pure: candidates in, choice out, chance from an rng. Bookies of
one rack fail together, so every write set (Qw neighbors around the ring of the ensemble) is spread over racks
as far as there are racks. Within that, chance decides, weighed by free space. `Placement` is what writers
ask: it knows who is registered, writable and not quarantined.
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
"""A bookie counts at most so many times the median one, however much space it has."""

TRIES: Final = 8
"""Position by position can end badly, by chance; again may end better."""

FALLBACKS = Counter(
    "magnetar_placement_fallbacks",
    "Ensembles that could not be chosen as wanted: in fewer racks, or with a quarantined bookie.",
    ["kind"],
    registry=REGISTRY,
)
begin_at_zero(FALLBACKS, "racks", "quarantined")


class Candidate(Protocol):
    """A bookie that takes new fragments."""

    @property
    def bookie_id(self) -> str: ...
    @property
    def rack(self) -> str:
        """Bookies of one rack fail together; empty: unknown, taken for a rack of its own kind."""
        ...

    @property
    def free_bytes(self) -> int: ...
    @property
    def started_ms(self) -> int:
        """When its process began to serve."""
        ...


class BookieRegistryView(Protocol):
    """Tells which bookies are up; `bookie_protocol.registry.BookieRegistry` follows it in metadata."""

    def writable(self) -> Sequence[Candidate]:
        """Registered and not read-only, in the order of their ids."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop when a bookie appears, disappears or changes."""
        ...


def choose_ensemble(
    candidates: Sequence[Candidate], striping: Striping, racks_min: int, rng: random.Random
) -> list[str] | None:
    """E different bookies, position by position, each write set in as many racks as can be.

    None when there are fewer than E candidates. Whether `racks_min` was reached tells `racks_of`.
    """
    if len(candidates) < striping.ensemble_size:
        return None
    racks = {each.bookie_id: each.rack for each in candidates}
    best: list[str] = []
    for _ in range(TRIES):
        chosen = _choose_once(candidates, striping, rng)
        if not best or racks_of(chosen, striping, racks) > racks_of(best, striping, racks):
            best = chosen
        if racks_of(best, striping, racks) >= min(racks_min, striping.write_quorum):
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
    """A bookie for one position of an ensemble, of a rack that its write sets are not in if there is one.

    `racks` tells the racks of the ensemble's members as far as known. None without a candidate.
    """
    taken = {bookie_id for i, bookie_id in enumerate(ensemble) if i != position}
    free = [each for each in candidates if each.bookie_id not in taken]
    if not free:
        return None
    used = {racks[ensemble[i]] for i in _neighbors(striping, position) if ensemble[i] in racks}
    return _pick(free, _weights(free), used, rng).bookie_id


def racks_of(ensemble: Sequence[str], striping: Striping, racks: dict[str, str]) -> int:
    """In how many racks the least spread write set is."""
    return min(
        len({racks.get(ensemble[position], "") for position in write_set})
        for write_set in striping.write_sets()
    )


def _neighbors(striping: Striping, position: int) -> list[int]:
    """The other positions that share a write set with this one."""
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
    """Chooses among the bookies that are up, and tells when it could not choose as wanted."""

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
        """How many bookies take new fragments, quarantined ones among them."""
        return len(self._registry.writable())

    def new_ensemble(self, striping: Striping) -> list[str]:
        """For a new ledger. Raises NotEnoughBookies.

        Quarantined bookies are taken only when there are not enough others.
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
        """For a position of an ensemble: may be the bookie that is there, when it is up and healthy.

        None without a candidate: the others of the ensemble are taken, quarantined ones are not.
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
        """Whether it may be: False only when too few racks are forbidden."""
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
    """A candidate whose rack does not matter."""

    __slots__ = ("bookie_id", "free_bytes", "started_ms")

    rack: Final = ""

    def __init__(self, candidate: Candidate) -> None:
        self.bookie_id = candidate.bookie_id
        self.free_bytes = candidate.free_bytes
        self.started_ms = candidate.started_ms
