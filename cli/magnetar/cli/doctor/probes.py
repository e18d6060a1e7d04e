"""Probes of `magnetar doctor` into host and network; tests substitute them."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from magnetar.cli.access_options import Access
from magnetar.cli.credentials import NoCredentials
from magnetar.cli.metadata_credentials import metadata_access
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.values import BookieMark, decode
from magnetar.common.security.tls.client_context import ClientTls

TIMEOUT_S: Final = 5.0
HEALTH_TIMEOUT_S: Final = 15.0
"""Timeout of a broker's health check, in seconds. The check stores a message and reports failures within
10 s.
"""
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
SYNC_BYTES: Final = 4_096
CERTIFICATE: Final = "the certificate is not accepted"
"""Begins the reason of servers whose certificate is not trusted, or names another host."""


class Unreachable(Exception):
    """Raised when a server does not answer; the message has the reason."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Result of a GET. `seconds` is its duration, `at_s` the wall time halfway through it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    at_s: float
    url: str = ""
    """Server that answered after a redirect; empty without a redirect."""


class _StaysEncrypted(urllib.request.HTTPRedirectHandler):
    """Follows redirects but those from HTTPS to HTTP: credentials are not sent in clear."""

    def redirect_request(self, req: urllib.request.Request, *args: Any) -> urllib.request.Request | None:
        found = super().redirect_request(req, *args)
        if found is not None and req.type == "https" and found.type != "https":
            return None
        return found


@dataclass(kw_only=True)
class Probes:
    """Probes of this host. Every method has a bounded duration."""

    access: Access = field(default_factory=Access)
    """Credentials and TLS towards brokers."""
    metadata_settings: Sequence[str] = ()
    """How etcd is reached, as for `metadata_access`."""

    def http_get(self, url: str, timeout_s: float = TIMEOUT_S, *, is_broker: bool = False) -> HttpAnswer:
        """Raises Unreachable. `is_broker`: send the credentials, and check the certificate as clients do."""
        began, wall = time.monotonic(), time.time()
        try:
            headers = self.access.credentials.http_headers() if is_broker else {}
            handlers: list[urllib.request.BaseHandler] = [_StaysEncrypted()]
            if url.startswith("https:"):
                handlers.append(urllib.request.HTTPSHandler(context=self._tls()))
            opener = urllib.request.build_opener(*handlers)
            with opener.open(urllib.request.Request(url, headers=headers), timeout=timeout_s) as answer:
                status, headers, body = answer.status, dict(answer.headers), answer.read(BODY_BYTES_MAX)
                answered = answer.url
        except urllib.error.HTTPError as error:
            with error:
                status, headers, body = error.code, dict(error.headers), error.read(BODY_BYTES_MAX)
                answered = error.url or url
        except NoCredentials as error:
            raise Unreachable(error.message) from error
        except (OSError, HTTPException, ValueError) as error:
            raise Unreachable(_reason(error)) from error
        took = time.monotonic() - began
        lowered = {name.lower(): value for name, value in headers.items()}
        return HttpAnswer(status, lowered, body, took, wall + took / 2, "" if answered == url else answered)

    def connect(self, host: str, port: int, *, tls: bool = False) -> float:
        """Return the time to connect, in seconds. Raises Unreachable."""
        began = time.monotonic()
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
                if tls:
                    self._tls().wrap_socket(connection, server_hostname=host).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be encoded.
            raise Unreachable(_reason(error)) from error
        return time.monotonic() - began

    def authenticate(self, host: str, port: int, *, tls: bool) -> None:
        """Connect as a client does, with the credentials. Raises Unreachable, with the broker's reason."""
        from magnetar.client.authentication.methods import Credentials
        from magnetar.client.connection.connection import connect

        async def act() -> None:
            credentials = self.access.credentials
            made = await connect(
                host,
                port,
                authentication=Credentials(credentials.method, credentials.supply)
                if credentials.method
                else None,
                tls=self._tls() if tls else None,
                timeout_s=TIMEOUT_S,
            )
            made.close()

        try:
            asyncio.run(act())
        except MagnetarError as error:
            raise Unreachable(str(error)) from error

    def _tls(self) -> ssl.SSLContext:
        """Raises Unreachable for files that cannot be used."""
        try:
            return ClientTls(self.access.files()).context()
        except ConfigError as error:
            raise Unreachable(str(error)) from error

    def doubts(self, metadata_url: str, cluster: str) -> dict[str, str]:
        """Return from metadata why bookies may lack data, by bookie. Raises Unreachable."""

        async def ask() -> dict[str, str]:
            keys = Keys(cluster)
            metadata = await open_metadata_store(
                metadata_url, metadata_access(metadata_url, self.metadata_settings)
            )
            try:
                found = await metadata.children(keys.bookie_marks_prefix)
            finally:
                await metadata.close()
            marks = {keys.bookie_of_mark(item.key): decode(BookieMark, item.value) for item in found.items}
            return {bookie_id: mark.doubt for bookie_id, mark in marks.items() if mark.doubt}

        try:
            return asyncio.run(asyncio.wait_for(ask(), TIMEOUT_S))
        except (MagnetarError, OSError, TimeoutError) as error:
            raise Unreachable(str(error) or "no answer in time") from error

    def port_is_free(self, port: int) -> bool:
        """Return whether a server could listen on the port."""
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("", port))
            except OSError:
                return False
            return True

    def sync_seconds(self, directory: Path, times: int) -> list[float]:
        """Return the durations of writing and syncing 4 KiB, in seconds. Raises OSError."""
        path = directory / f".magnetar-doctor-{os.getpid()}"
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        try:
            found = []
            for _ in range(times):
                os.write(descriptor, bytes(SYNC_BYTES))
                began = time.monotonic()
                os.fdatasync(descriptor)
                found.append(time.monotonic() - began)
            return found
        finally:
            os.close(descriptor)
            path.unlink()

    def space(self, directory: Path) -> tuple[int, int]:
        """Return (free bytes, total bytes). Raises OSError."""
        usage = shutil.disk_usage(directory)
        return usage.free, usage.total

    def file_system(self, directory: Path) -> str:
        """Return the file system type, such as ext4 or tmpfs; empty if unknown."""
        kind, longest = "", -1
        for line in (self.text("/proc/mounts") or "").splitlines():
            parts = line.split()
            mount = Path(parts[1])
            inside = mount == directory or mount in directory.parents
            if inside and len(parts[1]) >= longest:
                kind, longest = parts[2], len(parts[1])
        return kind

    def file_limit(self) -> int:
        """Return the limit of open files (ulimit -n); a very large number without a limit."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return 1 << 62 if soft == resource.RLIM_INFINITY else soft

    def memory(self) -> tuple[int, int] | None:
        """Return (available bytes, total bytes) of memory of this host or container; None if unknown."""
        lines = (line.split() for line in (self.text("/proc/meminfo") or "").splitlines())
        found = {parts[0].rstrip(":"): int(parts[1]) * 1024 for parts in lines if len(parts) > 1}
        if "MemAvailable" not in found or "MemTotal" not in found:
            return None
        available, total = found["MemAvailable"], found["MemTotal"]
        limit = (self.text("/sys/fs/cgroup/memory.max") or "max").strip()
        if limit.isdigit() and int(limit) < total:
            used = int((self.text("/sys/fs/cgroup/memory.current") or "0").strip())
            total = int(limit)
            available = min(available, max(total - used, 0))
        return available, total

    def processors(self) -> int:
        """Return the number of CPUs that this process may use."""
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity is not None else os.cpu_count() or 1

    def text(self, path: str) -> str | None:
        """Return the text of a kernel file; None if it does not exist."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def installed(self, module: str, package: str) -> str | None:
        """Return the version of a package; None if its module cannot be imported."""
        try:
            import_module(module)
            return version(package)
        except (ImportError, PackageNotFoundError):
            return None

    def protobuf_kind(self) -> str:
        """Return protobuf's implementation: upb if it is compiled."""
        return str(import_module("google.protobuf.internal.api_implementation").Type())


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", None) or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"{CERTIFICATE}: {inner.verify_message}"
    return str(getattr(inner, "strerror", None) or inner)
