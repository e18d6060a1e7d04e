"""Asks a broker's admin API for the commands of `magnetar admin`, with nothing but the standard library.

Exit codes: 0 done, 1 the broker refused, 2 the command line is wrong, 3 no broker answers.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import click
from magnetar.cli.admin.output import on_terminal, show_facts, show_rows
from magnetar.common.errors import ConfigError, InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs import request_ids

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

REDIRECTS_MAX: Final = 10
_FOLLOWED_AS_SENT: Final = (307, 308)
_FOLLOWED: Final = (301, 302, 303, *_FOLLOWED_AS_SENT)
"""By reads: what stands before a broker may send them on like this."""

_NEXT: Final = {
    401: "; give a valid token with --token",
    403: "; ask an administrator for the permission, or use another --token",
    502: "; is --admin-url that of a broker?",
    503: "; try again in a moment, or ask another broker with --admin-url",
}
"""Remedies by status, where the broker's reason cannot name one."""

_STRANGE_CHARS_MAX: Final = 300

NOTHING: Final = object()
"""Stands for a request without a body."""


class NoBroker(click.ClickException):
    """Raised when no server answers at the URL."""

    exit_code = 3


class NoOwner(click.ClickException):
    """Raised when no server answers at a redirect's target."""

    exit_code = 3


class _AsTheyAre(urllib.request.HTTPRedirectHandler):
    """Redirects are followed by `ask`, writes as well as reads, which knows then where it was sent."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker's response."""

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
    target: Target,
    method: str,
    path: str,
    body: Any = NOTHING,
    query: Mapping[str, object] | None = None,
    *,
    only_there: bool = False,
) -> Answer:
    """One call, at the broker that it is sent on to. Raises ClickException with the broker's reason.

    `only_there`: it is meant for the broker at --admin-url, and for no other.
    """
    base = target.admin_url.rstrip("/")
    _check(target)
    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    url = f"{base}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
    data = None if body is NOTHING else json.dumps(body).encode()
    request_id = request_ids.make()
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        request_ids.HEADER: request_id,
    }
    if target.token:
        headers["Authorization"] = f"Bearer {target.token}"
    opener = urllib.request.build_opener(_AsTheyAre, urllib.request.HTTPSHandler(context=_tls(target)))
    sent_on = False
    for _ in range(REDIRECTS_MAX):
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with opener.open(request, timeout=target.timeout_s) as response:
                return Answer(response.read(), dict(response.headers))
        except urllib.error.HTTPError as error:
            with error:
                followed = _FOLLOWED if method == "GET" else _FOLLOWED_AS_SENT
                if error.code not in followed or "Location" not in error.headers:
                    told = _reason(error.code, error.read(), path)
                    # Brokers have lines about each bug, and about each change that they were asked for.
                    if error.code == 500 or (error.code > 500 and method != "GET"):
                        told = f"{told}; its lines in the log have request_id {request_id}"
                    raise click.ClickException(told) from error
                url, sent_on = urljoin(url, error.headers["Location"]), True
                if only_there:
                    owner = _printable(urlsplit(url).netloc)
                    raise click.ClickException(
                        f"{base} is no broker, and sends us on to one of several, {owner}: name the one that "
                        "you mean with --admin-url"
                    ) from error
                if not url.startswith(("http://", "https://")):
                    raise click.ClickException(f"{base} sends us on to {_printable(url)!r}") from error
        except (OSError, HTTPException, UnicodeError) as error:  # The last: a host that can have no address.
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                reason = f"nothing came within {target.timeout_s:g} s (--request-timeout)"
            elif isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError):
                reason = reason.strerror or reason
            if sent_on:
                owner = _printable("{0.scheme}://{0.netloc}".format(urlsplit(url)))
                raise NoOwner(
                    f"{base} says that {owner} does this, which does not answer: {_printable(reason)}; "
                    "if that broker has just died, another one takes over within seconds: try again"
                ) from error
            raise NoBroker(
                f"no broker answers at {base}: {_printable(reason)}; start one, or name it with --admin-url"
            ) from error
    raise click.ClickException(f"brokers sent the request from one to the other {REDIRECTS_MAX} times")


def _tls(target: Target) -> ssl.SSLContext | None:
    """None: as the system does it."""
    if not (target.trust_certs_file or target.allow_insecure or target.certificate_file):
        return None
    from magnetar.common.security.tls.client_context import ClientFiles, ClientTls

    files = ClientFiles(
        trust_certs=target.trust_certs_file,
        certificate=target.certificate_file,
        key=target.key_file,
        allow_insecure=target.allow_insecure,
    )
    try:
        return ClientTls(files).context()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _check(target: Target) -> None:
    """Raises UsageError for what cannot even be sent."""
    try:
        parts = urlsplit(target.admin_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in target.admin_url):
        raise click.UsageError(f"--admin-url {target.admin_url!r} is not a URL; write it as http://HOST:PORT")
    if not (target.token.isascii() and target.token.isprintable()):
        raise click.UsageError("the token has characters that no token has, such as a line break")


def _reason(status: int, body: bytes, path: str) -> str:
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = _printable(body.decode(errors="replace").strip()) or "no reason is given"
        return f"{reason} (HTTP {status}){_NEXT.get(status, '; is --admin-url that of a broker?')}"
    what_next = _listing(path) if status == 404 else "" if "again" in reason else _NEXT.get(status, "")
    return f"{reason} (HTTP {status}){what_next}"


def _listing(path: str) -> str:
    """Which command shows what there is, when something is not there."""
    parts = [unquote(part) for part in path.split("/")[3:]]
    match parts:
        case ["persistent" | "non-persistent", tenant, namespace, topic, "subscription", *_]:
            command = f"topics subscriptions {parts[0]}://{tenant}/{namespace}/{topic}"
        case ["persistent" | "non-persistent" | "schemas", tenant, namespace, _, *_]:
            command = f"topics list {tenant}/{namespace}"
        case ["persistent" | "non-persistent" | "namespaces", tenant, _, *_]:
            command = f"namespaces list {tenant}"
        case ["tenants" | "namespaces", _]:
            command = "tenants list"
        case ["clusters", _, *_]:
            command = "clusters list"
        case _:
            return ""
    return f"; `magnetar admin {command}` shows what there is"


def _printable(reason: object) -> str:
    """A foreign text without control characters, truncated when it is long."""
    text = "".join(each if each.isprintable() else " " for each in str(reason))
    return text if len(text) <= _STRANGE_CHARS_MAX else f"{text[:_STRANGE_CHARS_MAX]} ..."


def _text(value: object) -> str | list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
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


def path_of(level: str, text: str) -> str:
    """The path of the 'namespace' or 'topic' that is meant. Raises BadParameter."""
    return namespace_path(text) if level == "namespace" else topic_path(text)


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
        from magnetar.cli.admin.records import draw_record

        draw_record(title, value)
    elif isinstance(value, dict):
        show_facts(target, title, {key: _cell(item) for key, item in value.items()})
    elif value and isinstance(value, list) and all(map(_is_flat, value)):
        columns = tuple(dict.fromkeys(key for each in value for key in each))
        rows = [{column: _cell(each.get(column, "")) for column in columns} for each in value]
        show_rows(target, title, columns, rows)
    elif isinstance(value, list):
        show_rows(target, title, ("name",), [{"name": _cell(item)} for item in value])
    else:
        print(_cell(value))


def _is_flat(value: Any) -> bool:
    """Whether it is a record without records in it."""
    return isinstance(value, dict) and not any(isinstance(each, dict) for each in value.values())


def _cell(value: Any) -> Any:
    """Nested values as JSON."""
    return json.dumps(value) if isinstance(value, dict | list | bool) else value
