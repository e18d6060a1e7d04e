"""A parsed file that is read again when it changes; the last good content is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from magnetar.common.obs.logs import get_logger
from magnetar.common.security.audit import audit_process
from magnetar.common.security.authentication.metrics import RELOADS
from magnetar.common.security.authentication.secret_source import SecretSource

log = get_logger(__name__)

T = TypeVar("T")


class Reloaded(Generic[T]):
    """The value of a setting that names a file."""

    def __init__(self, key: str, text: str, parse: Callable[[bytes], T]) -> None:
        """Read it. Raises ValueError that names the setting `key`; so must `parse`, without the key."""
        self._key = key
        self._source = SecretSource(key, text)
        self._parse = parse
        self.value = self._read()

    def reload(self) -> bool:
        """Read the file again when it has changed; return whether the value is another one."""
        if not self._source.has_changed():
            return False
        try:
            self.value = self._read()
        except ValueError as error:
            RELOADS.labels(self._key, "failed").inc()
            log.error("cannot reload, keeping the last good content", setting=self._key, reason=str(error))
            audit_process("reload", setting=self._key, outcome="failed", reason=str(error))
            return False
        RELOADS.labels(self._key, "ok").inc()
        log.info("reloaded", setting=self._key)
        audit_process("reload", setting=self._key, outcome="done")
        return True

    def _read(self) -> T:
        content = self._source.read()
        try:
            return self._parse(content)
        except ValueError as error:
            raise ValueError(f"{self._key}: {error}") from error
