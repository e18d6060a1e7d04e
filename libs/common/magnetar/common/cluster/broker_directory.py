"""The brokers that are up, their addresses and the leader, read from their registrations in metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from magnetar.common.cluster.mirror import Mirror
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BrokerRegistration, Leader, decode


@dataclass(frozen=True, slots=True)
class _Registered:
    registration: BrokerRegistration
    version: int


@dataclass(frozen=True, slots=True)
class _Leading:
    leader: Leader
    version: int


class BrokerDirectory:
    """Follows the brokers' registrations. Call `start` before any query; use it on one event loop.

    A registration is a hint: a broker missing here may be running but cut off from metadata.
    """

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._leader_key = keys.broker_leader
        self._brokers = Mirror[str, _Registered](
            metadata, keys.brokers_prefix, "brokers", keys.broker_id_of, _registered
        )
        self._leaders = Mirror[str, _Leading](
            metadata, keys.broker_leader, "leader of brokers", str, _leading
        )
        self._by_id: Mapping[str, BrokerRegistration] | None = None
        self._brokers.on_change(self._changed)

    @property
    def leader(self) -> Leader | None:
        """Returns the broker that assigns bundles; None if no leader is known."""
        found = self._leaders.items.get(self._leader_key)
        return None if found is None else found.leader

    async def start(self) -> None:
        """Starts following and returns once the registrations are loaded. Waits while metadata is
        unavailable.
        """
        await self._brokers.start()
        await self._leaders.start()

    async def close(self) -> None:
        """Stops following; the registrations read so far stay. Idempotent."""
        await self._brokers.close()
        await self._leaders.close()

    def get(self, broker_id: str) -> BrokerRegistration | None:
        """Returns the broker's registration; None if it is not registered."""
        found = self._brokers.items.get(broker_id)
        return None if found is None else found.registration

    def all(self) -> list[BrokerRegistration]:
        """Returns every registered broker, by id."""
        return list(self.by_id().values())

    def by_id(self) -> Mapping[str, BrokerRegistration]:
        """Returns every registered broker in the order of ids, as it is now: a later change is not in it."""
        if self._by_id is None:  # sorted once a change, not once a question: the leader asks very often
            self._by_id = {key: found.registration for key, found in sorted(self._brokers.items.items())}
        return self._by_id

    def is_current(self, broker_id: str, run: int) -> bool:
        """Returns whether this run of the broker is the registered one."""
        found = self._brokers.items.get(broker_id)
        return found is not None and found.registration.run == run

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` on the loop with each broker that registered, changed or was removed."""
        self._brokers.on_change(lambda broker_id, _: listener(broker_id))

    def on_leader(self, listener: Callable[[Leader | None], None]) -> None:
        """Calls `listener` on the loop with each new leader, or None when there is none."""
        self._leaders.on_change(lambda _, found: listener(None if found is None else found.leader))

    def note(self, registration: BrokerRegistration, version: int) -> None:
        """Records a registration that this process wrote or read, without waiting for the watch."""
        self._brokers.note(registration.broker_id, _Registered(registration, version))

    def note_gone(self, broker_id: str, version: int) -> None:
        """Records that this process found no registration with a version up to `version`."""
        self._brokers.note_removed(broker_id, version)

    def _changed(self, _broker_id: str, _found: _Registered | None) -> None:
        self._by_id = None


def addresses_of(registration: BrokerRegistration, listener: str = "") -> BrokerRegistration.Addresses:
    """Returns the broker's addresses for clients of an advertised listener; "" selects the default listener.

    Raises ServiceNotReady if the broker has no listener with that name.
    """
    if not listener:
        return registration.addresses
    if listener not in registration.listeners:
        raise ServiceNotReady(
            f"broker {registration.broker_id} has no listener {listener!r} (advertisedListeners); "
            f"it has {', '.join(map(repr, sorted(registration.listeners))) or 'none'}"
        )
    return registration.listeners[listener]


def _registered(data: bytes, version: int) -> _Registered:
    return _Registered(decode(BrokerRegistration, data), version)


def _leading(data: bytes, version: int) -> _Leading:
    return _Leading(decode(Leader, data), version)
