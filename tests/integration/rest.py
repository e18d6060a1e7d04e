"""Calls of the admin API, as an operator's tool makes them."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from tests.integration.harness import Endpoint


def admin(endpoint: Endpoint, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and decoded body of a call of /admin/v2/..., whatever the status is."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{endpoint.http_url}/admin/v2/{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, _decoded(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _decoded(error.read())


def path_of(topic: str, *rest: str) -> str:
    """`persistent/tenant/namespace/topic/rest`, each part encoded."""
    domain, _, name = topic.partition("://")
    return "/".join([domain, *(urllib.parse.quote(part, safe="") for part in name.split("/")), *rest])


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode()
