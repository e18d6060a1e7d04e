"""Probes of `magnetar doctor` into host and network; tests substitute them."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magnetar.cli.access_options import Access
from magnetar.cli.credentials import NoCredentials
from magnetar.cli.doctor.served_protocol import served_protocol
from magnetar.cli.metadata_credentials import metadata_access
from magnetar.cli.wrong_port import http_problem
from magnetar.common.cluster.bookie_states import BookieState, bookie_states
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.values import BookieMark, decode
from magnetar.common.security.tls.client_context import ClientTls

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.common.metadata.store import MetadataStore

Found = TypeVar("Found")

TIMEOUT_S: Final = 5.0
HEALTH_TIMEOUT_S: Final = 15.0
"""Timeout of a broker's health check, in seconds. The check stores a message and reports failures within
10 s.
"""
PROBE_TIMEOUT_S: Final = 10.0
"""Timeout of each step of a probe message, in seconds."""
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
SYNC_BYTES: Final = 4_096
CERTIFICATE: Final = "the certificate is not accepted"
"""Begins the reason of servers whose certificate is not trusted, or names another host."""


class Unreachable(Exception):
    """Raised when a server does not answer; the message has the reason."""


class NotPermitted(Exception):
    """Raised when the credentials do not allow a probe; the message has the broker's reason."""


@dataclass(frozen=True, slots=True)
class Published:
    """A message that was published and read back after `seconds`."""

    seconds: float
    is_carried: bool
    """Whether the service carries connections to brokers, so that clients do not have to reach brokers."""


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

    def publish_and_read(self, service_url: str, topic: str) -> Published:
        """Publish a message to a topic and read it back, as a client does.

        Raises NotPermitted, or Unreachable with the broker's reason, within 3 times `PROBE_TIMEOUT_S`.
        """
        from magnetar.client.errors import AuthenticationFailed, NotAuthorized, TopicNotFound

        try:
            return asyncio.run(self._publish_and_read(service_url, topic))
        except (AuthenticationFailed, NotAuthorized, TopicNotFound) as error:
            raise NotPermitted(str(error)) from error
        except TimeoutError as error:
            reason = f"{topic}: a published message was not read back within {PROBE_TIMEOUT_S:g} s"
            raise Unreachable(reason) from error
        except MagnetarError as error:
            raise Unreachable(str(error)) from error

    async def _publish_and_read(self, service_url: str, topic: str) -> Published:
        from magnetar.client.authentication.methods import Credentials
        from magnetar.client.client import Client
        from magnetar.client.options import ClientOptions, Tls

        access, credentials = self.access, self.access.credentials
        client = Client.with_options(
            ClientOptions(
                service_url=service_url,
                authentication=Credentials(credentials.method, credentials.supply)
                if credentials.method
                else None,
                tls=Tls(
                    trust_certs_file=access.trust_certs_file,
                    certificate_file=credentials.certificate_file,
                    key_file=credentials.key_file,
                    allow_insecure=access.allow_insecure,
                    verify_hostname=access.verify_hostname,
                ),
                operation_timeout_s=PROBE_TIMEOUT_S,
            )
        )
        payload = f"magnetar doctor {secrets.token_hex(8)}".encode()
        try:
            is_carried = await _is_carried(client, topic)
            reader = await client.create_reader(topic)
            producer = await client.create_producer(topic, batching=None, send_timeout_s=PROBE_TIMEOUT_S)
            began = time.monotonic()
            await producer.send(payload)
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                while (await reader.read()).data != payload:
                    pass  # A message of another doctor.
            return Published(time.monotonic() - began, is_carried)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    await client.close()

    def bookies(self, metadata_url: str, cluster: str) -> list[BookieState]:
        """Return the bookies of a cluster and their states, from metadata. Raises Unreachable."""
        return self._in_metadata(metadata_url, lambda store: bookie_states(store, Keys(cluster)))

    def doubts(self, metadata_url: str, cluster: str) -> dict[str, str]:
        """Return from metadata why bookies may lack data, by bookie. Raises Unreachable."""

        async def ask(metadata: MetadataStore) -> dict[str, str]:
            keys = Keys(cluster)
            found = await metadata.children(keys.bookie_marks_prefix)
            marks = {keys.bookie_of_mark(item.key): decode(BookieMark, item.value) for item in found.items}
            return {bookie_id: mark.doubt for bookie_id, mark in marks.items() if mark.doubt}

        return self._in_metadata(metadata_url, ask)

    def _in_metadata(self, metadata_url: str, ask: Callable[[MetadataStore], Awaitable[Found]]) -> Found:
        """Return what `ask` finds in metadata. Raises Unreachable."""

        async def act() -> Found:
            metadata = await open_metadata_store(
                metadata_url, metadata_access(metadata_url, self.metadata_settings)
            )
            try:
                return await ask(metadata)
            finally:
                await metadata.close()

        try:
            return asyncio.run(asyncio.wait_for(act(), TIMEOUT_S))
        except (MagnetarError, OSError, TimeoutError) as error:
            raise Unreachable(str(error) or "no answer in time") from error

    def server_at(self, port: int) -> str:
        """Return which kind of server listens at a port of this host; empty for an unknown one."""
        return served_protocol(port)

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


async def _is_carried(client: Client, topic: str) -> bool:
    """Return whether the service carries connections to the topic's broker instead of naming it."""
    from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandLookupTopic

    connection = await client.parts.pool.to_service()
    lookup = CommandLookupTopic(topic=topic, request_id=0)
    command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup)
    answer = await connection.request(command, topic, PROBE_TIMEOUT_S)
    return answer.lookupTopicResponse.proxy_through_service_url


def _reason(error: Exception) -> str:
    if problem := http_problem(error):
        return problem
    inner = getattr(error, "reason", None) or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"{CERTIFICATE}: {inner.verify_message}"
    return str(getattr(inner, "strerror", None) or inner)
