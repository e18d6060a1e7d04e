"""Possible object locations of a cluster: configured ones, and ones recorded by earlier sweeps.

Nothing references a failed attempt at a location that its ledger no longer uses. So each sweep records the
locations at which it found objects, or that ledgers reference, and the next sweep lists them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.offload_policy.location import configured_target, policy_target
from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Namespace, OffloadLocation, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)

LOCATIONS_MAX: Final = 10_000
"""Locations in one sweep; the next sweep continues after them."""


class KnownLocations:
    """The object locations recorded in a cluster's metadata."""

    def __init__(
        self, metadata: MetadataStore, keys: Keys, config: OffloadConfig, cluster: str, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self.remembered: set[str] = set()
        """Locations found in metadata by the last call of `known`."""
        self._behind = ""

    async def known(self) -> set[str]:
        """Returns the locations in configuration and policies, and the recorded ones. Raises
        MetadataError.
        """
        places = [configured_target(self._config, self._cluster)]
        for item in (await self._metadata.children(self._keys.namespaces_prefix())).items:
            try:
                policy = decode(Namespace, item.value).policies.offload
            except (DataCorruption, UnsupportedFormat) as error:
                log.error("cannot read a namespace's metadata", key=item.key, reason=str(error))
                continue
            places.append(policy_target(policy, self._cluster))
        self.remembered = set()
        for item in (await self._metadata.children(self._keys.offload_locations_prefix)).items:
            try:
                self.remembered.add(decode(OffloadLocation, item.value).location)
            except (DataCorruption, UnsupportedFormat) as error:
                log.error("cannot read an offload location in metadata", key=item.key, reason=str(error))
        return {place.location for place in places if place.location is not None} | self.remembered

    def in_turn(self, locations: Collection[str]) -> list[str]:
        """Returns at most LOCATIONS_MAX of them, first those that the last sweep did not reach."""
        ordered = sorted(locations)
        if len(ordered) <= LOCATIONS_MAX:
            return ordered
        first = sum(location <= self._behind for location in ordered) % len(ordered)
        some = [*ordered[first:], *ordered[:first]][:LOCATIONS_MAX]
        self._behind = some[-1]
        return some

    async def remember(self, locations: Collection[str]) -> None:
        """Records locations that have objects or are referenced by ledgers; a failed write is repeated by a
        later sweep.
        """
        try:
            for location in sorted(set(locations) - self.remembered):
                value = OffloadLocation(location=location, created_ms=self._clock.wall_ms())
                await self._metadata.put(self._keys.offload_location(location), encode(value))
        except MetadataError as error:
            log.warning("cannot record offload locations, retrying at the next sweep", error=str(error))

    async def forget(self, location: str) -> None:
        """Deletes the record of a location without objects. Raises MetadataError."""
        await self._metadata.delete(self._keys.offload_location(location))
