"""The gRPC channel of an offload client. With TLS, another one is opened after the files were replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import grpc
from magnetar.common.offload.client_calls import options
from magnetar.common.offload.offload_errors import OffloadUnreachable
from magnetar.common.offload.service_url import ServiceUrl
from magnetar.common.security.services.credentials import CredentialFiles, ServiceCredentials

LOOK_S: Final = 30.0
"""Minimum seconds between checks for replaced files."""


@dataclass(slots=True, eq=False)
class _Lent:
    """An open gRPC channel, its credentials' generation, and its running calls."""

    channel: grpc.Channel
    generation: int
    calls: int = 0


class ClientChannel:
    """Opens the channel at the first call; threads may share it. `close` it at the end.

    The credentials of a gRPC channel are fixed. After a renewal, new calls use another channel, and the
    earlier one is closed when its last call ends.
    """

    def __init__(
        self,
        url: ServiceUrl,
        tls: CredentialFiles | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tls` is ignored unless the URL says grpcs://. Raises ValueError without files for TLS, and
        ConfigError for files that cannot be used.
        """
        if url.tls and tls is None:
            raise ValueError(
                f"{url} needs the certificate of a job and the authority of services: give PEM files, see "
                "docs/spark.md"
            )
        self._url = url
        self._credentials = ServiceCredentials(tls) if url.tls and tls is not None else None
        self._options = options()
        if tls is not None and tls.server_name:
            self._options.append(("grpc.ssl_target_name_override", tls.server_name))
        self._monotonic = monotonic
        self._next_look = monotonic() + LOOK_S
        self._lock = threading.Lock()
        self._current: _Lent | None = None
        self._replaced: set[_Lent] = set()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[grpc.Channel]:
        """Yields the channel for one call. Raises OffloadUnreachable after `close`."""
        lent = self._take()
        try:
            yield lent.channel
        finally:
            self._give_back(lent)

    def close(self) -> None:
        """Ends every call; idempotent."""
        with self._lock:
            self._closed = True
            channels = [*self._replaced, *(() if self._current is None else (self._current,))]
            self._replaced.clear()
            self._current = None
        for each in channels:
            each.channel.close()

    # --- internal ---

    def _take(self) -> _Lent:
        unused: _Lent | None = None
        with self._lock:
            if self._closed:
                raise OffloadUnreachable(f"the channel to {self._url} was closed")
            generation = self._generation()
            current = self._current
            if current is not None and current.generation != generation:
                if current.calls:
                    self._replaced.add(current)
                else:
                    unused = current
                current = None
            if current is None:
                current = self._current = _Lent(self._open(), generation)
            current.calls += 1
        if unused is not None:
            unused.channel.close()
        return current

    def _give_back(self, lent: _Lent) -> None:
        with self._lock:
            lent.calls -= 1
            is_over = not lent.calls and lent in self._replaced
            if is_over:
                self._replaced.discard(lent)
        if is_over:
            lent.channel.close()

    def _generation(self) -> int:
        if self._credentials is None:
            return 0
        now = self._monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._credentials.look()
        return self._credentials.generation

    def _open(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._url.target, options=self._options)
        return grpc.secure_channel(self._url.target, self._credentials.channel(), options=self._options)
