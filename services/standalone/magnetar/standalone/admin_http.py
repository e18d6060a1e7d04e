"""Asks a broker's admin API for the commands of `magnetar admin`, with nothing but the standard library.

Exit codes: 0 done, 1 the broker refused, 2 the command line is wrong, 3 no broker answers.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click
from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.standalone.admin_output import on_terminal, show_facts, show_rows

if TYPE_CHECKING:
    from magnetar.standalone.admin import Target

TIMEOUT_S: Final = 60.0
NOTHING: Final = object()
"""As a body: there is none."""


class NoBroker(click.ClickException):
    """Nobody answers at the URL."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker said."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def value(self) -> Any:
        """The JSON of the body, or its text; None when there is none."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


def ask(
    target: Target, method: str, path: str, body: Any = NOTHING, query: Mapping[str, object] | None = None
) -> Answer:
    """One call. Raises ClickException with the broker's reason."""
    base = target.admin_url.rstrip("/")
    if urlsplit(base).scheme not in ("http", "https"):
        raise click.UsageError(f"--admin-url {target.admin_url!r} is not an http:// URL")
    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    url = f"{base}{path}" + (f"?{urlencode(given)}" if given else "")
    data = None if body is NOTHING else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return Answer(response.read(), dict(response.headers))
    except urllib.error.HTTPError as error:
        with error:
            raise click.ClickException(_reason(error.code, error.read())) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise NoBroker(
            f"no broker answers at {base}: {reason}; start one, or name it with --admin-url"
        ) from error


def _reason(status: int, body: bytes) -> str:
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = body.decode(errors="replace").strip() or "no reason is given"
    return f"{reason} (HTTP {status})"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def tenant_path(tenant: str) -> str:
    return f"/admin/v2/tenants/{quote(tenant, safe='')}"


def namespace_path(text: str) -> str:
    """Raises BadParameter."""
    try:
        name = NamespaceName.parse(text)
    except InvalidName as error:
        raise click.BadParameter(str(error)) from error
    return f"/admin/v2/namespaces/{quote(name.tenant, safe='')}/{quote(name.namespace, safe='')}"


def topic_path(text: str) -> str:
    """Raises BadParameter."""
    try:
        name = TopicName.parse(text)
    except InvalidName as error:
        raise click.BadParameter(str(error)) from error
    parts = (name.domain, name.tenant, name.namespace.namespace, name.local_name)
    return "/admin/v2/" + "/".join(quote(part, safe="") for part in parts)


def subscription_path(topic: str, subscription: str) -> str:
    """The name of a subscription is encoded twice, as the API wants it."""
    return f"{topic_path(topic)}/subscription/{quote(quote(subscription, safe=''), safe='')}"


def show(target: Target, title: str, value: Any, *, asked: bool = False) -> None:
    """An answer: drawn on a terminal, JSON for programs. Without one, nothing, unless it was `asked`."""
    if value is None:
        if asked:
            print(f"{title}: not set" if on_terminal(target) else "null")
        return
    if target.output == "json" or (target.output == "auto" and not on_terminal(target)):
        print(json.dumps(value, indent=2))
    elif isinstance(value, dict) and on_terminal(target):
        from magnetar.standalone.admin_records import draw_record

        draw_record(title, value)
    elif isinstance(value, dict):
        show_facts(target, title, {key: _cell(item) for key, item in value.items()})
    elif isinstance(value, list):
        show_rows(target, title, ("name",), [{"name": _cell(item)} for item in value])
    else:
        print(_cell(value))


def _cell(value: Any) -> Any:
    """Nested values as JSON."""
    return json.dumps(value) if isinstance(value, dict | list | bool) else value


def pairs(given: tuple[str, ...], what: str) -> dict[str, str]:
    """Options of the form key=value. Raises UsageError."""
    found = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{what} {each!r} must have the form key=value")
        found[key] = value
    return found
