"""Namespaces of single tests, made and removed by the admin API."""

from __future__ import annotations

import http.client
import re
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

TENANT: Final = "public"
"""The tenant of all namespaces; each standalone has it."""

TIMEOUT_S: Final = 30.0
"""Limit of one call, in seconds."""

NAME_CHARACTERS_MAX: Final = 60


class AdminCallFailed(RuntimeError):
    """The admin API refused a call; the message has its status and reason."""


def create_namespace(admin_url: str, hint: str = "", headers: Mapping[str, str] | None = None) -> str:
    """Create a namespace with the default policies and return its name, `public/NAME`.

    `hint` becomes a part of the name, so that logs show the test; `headers` are the caller's credentials.
    Raises AdminCallFailed, OSError.
    """
    slug = re.sub(r"[^A-Za-z0-9]+", "-", hint)[:NAME_CHARACTERS_MAX].strip("-")
    namespace = f"{TENANT}/{slug or 'test'}-{uuid.uuid4().hex[:8]}"
    _call("PUT", admin_url, f"/admin/v2/namespaces/{namespace}", headers)
    return namespace


def remove_namespace(admin_url: str, namespace: str, headers: Mapping[str, str] | None = None) -> None:
    """Delete a namespace with its topics and their connections; one that is gone is no error.

    Needs forceDeleteNamespaceAllowed=true. Raises AdminCallFailed, OSError.
    """
    _call("DELETE", admin_url, f"/admin/v2/namespaces/{namespace}?force=true", headers, also=404)


def _call(
    method: str, admin_url: str, path: str, headers: Mapping[str, str] | None, also: int | None = None
) -> None:
    parts = urlsplit(admin_url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request(
            method, path, headers={**(headers or {}), "Content-Length": "0", "Connection": "close"}
        )
        response = connection.getresponse()
        body = response.read().decode(errors="replace").strip()
    finally:
        connection.close()
    if not 200 <= response.status < 300 and response.status != also:
        raise AdminCallFailed(f"{method} {admin_url}{path} was refused with status {response.status}: {body}")
