"""The admin API as a script with HTTP knows it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.harness import Endpoint

NOTHING = object()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return str(self.json["reason"])


REDIRECTS_MAX = 3


@dataclass(frozen=True, slots=True)
class Rest:
    """Calls of one broker's admin API; paths begin behind its root. Sent on, they go on."""

    endpoint: Endpoint
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each call: the caller's credentials."""
    root: str = "/admin/v2"

    def call(self, method: str, path: str, body: Any = NOTHING) -> Reply:
        data = None if body is NOTHING else body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"{self.endpoint.http_url}{self.root}{path}"
        for _ in range(REDIRECTS_MAX):
            reply = _exchange(method, url, data, self.headers)
            if reply.status != 307:
                return reply
            url = reply.headers["Location"]
        raise AssertionError(f"{method} {path} was sent on {REDIRECTS_MAX} times, at last to {url}")

    def get(self, path: str) -> Any:
        """The JSON of an answer with status 200; None when it has no body."""
        reply = self.call("GET", path)
        assert reply.status == 200, (path, reply)
        return reply.json if reply.body else None

    def do(self, method: str, path: str, body: Any = NOTHING) -> None:
        """A write that succeeds with 204."""
        reply = self.call(method, path, body)
        assert (reply.status, reply.body) == (204, b""), (method, path, reply)

    def refused(self, status: int, method: str, path: str, body: Any = NOTHING) -> str:
        """A call that is refused with this status; returns the reason."""
        reply = self.call(method, path, body)
        assert reply.status == status, (method, path, reply)
        return reply.reason

    def new_namespace(self, **policies: Any) -> str:
        """A namespace of its own in a tenant of its own."""
        tenant = f"t{uuid.uuid4().hex[:8]}"
        self.do("PUT", f"/tenants/{tenant}", {"allowedClusters": [self.endpoint.cluster]})
        self.do("PUT", f"/namespaces/{tenant}/ns", policies)
        return f"{tenant}/ns"


def _exchange(method: str, url: str, data: bytes | None, credentials: Mapping[str, str]) -> Reply:
    headers = {"Content-Type": "application/json", **credentials}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return Reply(response.status, response.read(), dict(response.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read(), dict(error.headers))
