"""Which brokers are up, where they are, and which of them leads: what they say of themselves in metadata."""

from __future__ import annotations

from collections.abc import Callable
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
    """Follows the brokers' registrations. `start`, then ask; all calls on one loop.

    A registration is a hint: a broker that is not here may be up and cut off from metadata.
    """

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._leader_key = keys.broker_leader
        self._brokers = Mirror[str, _Registered](
            metadata, keys.brokers_prefix, "brokers", keys.broker_id_of, _registered
        )
        self._leaders = Mirror[str, _Leading](
            metadata, keys.broker_leader, "leader of brokers", str, _leading
        )

    @property
    def leader(self) -> Leader | None:
        """The broker that assigns bundles, as far as is known."""
        found = self._leaders.items.get(self._leader_key)
        return None if found is None else found.leader

    async def start(self) -> None:
        """Follow from now on; returns once the brokers are known. Waits while metadata is away."""
        await self._brokers.start()
        await self._leaders.start()

    async def close(self) -> None:
        """Follow no more; what is known stays. Idempotent."""
        await self._brokers.close()
        await self._leaders.close()

    def get(self, broker_id: str) -> BrokerRegistration | None:
        """The broker as it registered; None when it is not up."""
        found = self._brokers.items.get(broker_id)
        return None if found is None else found.registration

    def all(self) -> list[BrokerRegistration]:
        """Every broker that is up, by id."""
        return [found.registration for _, found in sorted(self._brokers.items.items())]

    def is_current(self, broker_id: str, run: int) -> bool:
        """Whether this run of the broker is the one that is up."""
        found = self._brokers.items.get(broker_id)
        return found is not None and found.registration.run == run

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener`, a plain call on the loop, with each broker that came, went or changed."""
        self._brokers.on_change(lambda broker_id, _: listener(broker_id))

    def on_leader(self, listener: Callable[[Leader | None], None]) -> None:
        """Call `listener`, a plain call on the loop, with each leader; None while there is none."""
        self._leaders.on_change(lambda _, found: listener(None if found is None else found.leader))

    def note(self, registration: BrokerRegistration, version: int) -> None:
        """This process has just written or read it: no need to wait for the watch."""
        self._brokers.note(registration.broker_id, _Registered(registration, version))

    def note_gone(self, broker_id: str, version: int) -> None:
        """This process has just seen that no registration up to `version` is there any more."""
        self._brokers.note_removed(broker_id, version)


def addresses_of(registration: BrokerRegistration, listener: str = "") -> BrokerRegistration.Addresses:
    """Where clients of that advertised listener reach the broker; "" is who names none.

    Raises ServiceNotReady when the broker has no listener of that name.
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
