"""A scan of a namespace's objects, compared with the references of its ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.offload.store_calls import OpenStore, Store, in_thread, until
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import PERSISTENT
from magnetar.ledger.cold.layout import MANIFEST_NAME, escape, parse_attempt_path
from magnetar.ledger.cold.objects import StoredObject
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

OK: Final = "OK"
RUNNING: Final = "RUNNING"
MISSING: Final = "MISSING"
UNKNOWN: Final = "UNKNOWN"

ATTEMPTS_MAX: Final = 100_000
"""Maximum attempts of one scan; the report tells when more were left out."""


@dataclass(slots=True)
class ScannedAttempt:
    """The directory of one attempt."""

    location: str
    path: str
    topic: str
    ledger_id: int
    attempt: str
    """Hexadecimal."""
    status: str = UNKNOWN
    """OK: objects of an offloaded ledger, with their manifest; MISSING: the ledger references them and the
    manifest is missing; RUNNING: a job writes them; UNKNOWN: unreferenced, and a later sweep deletes them.
    """
    objects: int = 0
    byte_length: int = 0
    newest_ms: int = 0
    whole: bool = False


@dataclass(slots=True)
class Scan:
    """Result of scanning one namespace."""

    attempts: list[ScannedAttempt] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Errors of locations that could not be listed."""
    truncated: bool = False

    def count(self, status: str) -> int:
        """Returns the number of attempts with this status."""
        return sum(each.status == status for each in self.attempts)


async def scan(
    namespace: NamespaceName, ledgers: OffloadLedgers, configured: Iterable[str], open_store: OpenStore
) -> Scan:
    """Scans every location that ledgers of the namespace reference, and the `configured` ones.

    The scan is not a snapshot. Locations that cannot be listed are among the errors. Raises MetadataError.
    """
    result = Scan()
    named: dict[str, ScannedAttempt] = {}
    locations = set(configured)
    async for found in ledgers.everywhere(namespace=namespace):
        for ledger in found.ledgers:
            offload = ledger.offload
            if offload.state not in (Offload.RUNNING, Offload.COMPLETE):
                continue
            locations.add(offload.location)
            status = MISSING if offload.state == Offload.COMPLETE else RUNNING
            name = offload.attempt.hex()
            named[name] = ScannedAttempt(
                offload.location, offload.path, found.topic.full, ledger.ref.id, name, status
            )
    result.attempts.extend(named.values())
    prefix = f"{escape(namespace.tenant)}/{escape(namespace.namespace)}"
    for location in sorted(locations):
        try:
            await _look_at(open_store(location), prefix, named, result)
        except MagnetarError as error:
            result.errors.append(f"{location}: {error}")
    return result


async def _look_at(store: Store, prefix: str, named: dict[str, ScannedAttempt], result: Scan) -> None:
    await in_thread(lambda stop: _look(until(stop, store.list(prefix)), store.location, named, result))


def _look(
    listing: Iterable[StoredObject], location: str, named: dict[str, ScannedAttempt], result: Scan
) -> None:
    unknown: dict[str, ScannedAttempt] = {}
    for path, byte_length, modified_ms in listing:
        directory, _, name = path.rpartition("/")
        found = unknown.get(directory)
        if found is None:
            parsed = parse_attempt_path(directory)
            if parsed is None:
                continue
            attempt = parsed.attempt.hex()
            found = named.get(attempt)
            if found is None:
                topic = f"{PERSISTENT}://{parsed.tenant}/{parsed.namespace}/{parsed.local_name}"
                found = ScannedAttempt(location, directory, topic, parsed.ledger_id, attempt)
                if len(result.attempts) >= ATTEMPTS_MAX:
                    result.truncated = True
                    continue
                result.attempts.append(found)
            unknown[directory] = found
        found.objects += 1
        found.byte_length += byte_length
        found.newest_ms = max(found.newest_ms, modified_ms)
        if name == MANIFEST_NAME:
            found.whole = True
            if found.status == MISSING:
                found.status = OK
