"""Single calls of the admin API, for tests of something else."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.integration.harness import Endpoint


def admin(endpoint: Endpoint, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and decoded body of a call of /admin/v2/..., whatever the status is."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{endpoint.http_url}/admin/v2/{path}", data, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            status, answer = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, answer = error.code, error.read()
    return status, json.loads(answer) if answer else None


def path_of(topic: str, *rest: str) -> str:
    """The path of something of a topic."""
    return "/".join([topic.replace("://", "/"), *rest])


def set_policy(endpoint: Endpoint, topic: str, policy: str, value: Any) -> None:
    """Give a topic a policy of its own; it holds on return."""
    status, answer = admin(endpoint, "POST", path_of(topic, policy), value)
    assert status in (200, 204), (topic, policy, status, answer)
