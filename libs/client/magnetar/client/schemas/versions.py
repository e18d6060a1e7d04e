"""Definitions of a topic's versions that a schema has been given, at most a fixed number of them."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from magnetar.client.schemas.schema import SchemaError, shown_version, version_key

D = TypeVar("D")

VERSIONS_MAX: Final = 256
"""Maximum versions of a topic that a schema keeps; the oldest is dropped and fetched again when needed."""


class WriterVersions(Generic[D]):
    """The results that a schema keeps, one for each version."""

    def __init__(self, versions_max: int = VERSIONS_MAX) -> None:
        self._versions_max = versions_max
        self._versions: dict[bytes, D] = {}

    def has(self, version: bytes) -> bool:
        """Whether a version was added and is still kept."""
        return version_key(version) in self._versions

    def add(self, version: bytes, made: D) -> None:
        """Keeps what was made of a version, in place of the oldest one where there are too many."""
        if not self.has(version) and len(self._versions) >= self._versions_max:
            del self._versions[next(iter(self._versions))]
        self._versions[version_key(version)] = made

    def get(self, version: bytes) -> D:
        """Returns what was made of a version. Raises SchemaError for one that was never added."""
        try:
            return self._versions[version_key(version)]
        except KeyError:
            raise SchemaError(
                f"the definition of schema version {shown_version(version)} is not known; fetch it with "
                "CommandGetSchema and add it with add_version before decoding"
            ) from None
