"""HTTP client of `magnetar admin` for a broker's admin API; uses only the standard library.

Exit codes: 0 done, 1 the broker refused the request, 2 usage error, 3 no broker answers.
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
from magnetar.cli.wrong_port import http_problem
from magnetar.common.errors import ConfigError, InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs import request_ids

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

REDIRECTS_MAX: Final = 10
_FOLLOWED_AS_SENT: Final = (307, 308)
_FOLLOWED: Final = (301, 302, 303, *_FOLLOWED_AS_SENT)
"""Redirect statuses followed for reads: a load balancer in front of brokers may send them."""

_NEXT: Final = {
    401: "; give valid credentials with --token, --auth-plugin or --client-conf",
    403: "; ask an administrator for the permission, or use other credentials",
    502: "; check that --admin-url is the HTTP URL of a broker",
    503: "; retry shortly, or use another broker with --admin-url",
}
"""Remedies by HTTP status, appended to the broker's reason."""

_STRANGE_CHARS_MAX: Final = 300

NOTHING: Final = object()
"""Marks a request without a body."""


class NoBroker(click.ClickException):
    """Raised when no server answers at the URL."""

    exit_code = 3


class NotFound(click.ClickException):
    """Raised when the broker answers that something does not exist."""


class NoOwner(click.ClickException):
    """Raised when no server answers at a redirect's target."""

    exit_code = 3


class _AsTheyAre(urllib.request.HTTPRedirectHandler):
    """Disables urllib's redirects: `ask` follows them for reads and writes, and keeps the target for
    errors.
    """

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker's response."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def value(self) -> Any:
        """The parsed JSON body, or its text; None without a body."""
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
    """Send one request and follow redirects to its broker. Raises ClickException with the broker's reason.

    `only_there`: refuse redirects; the request is for the broker at --admin-url only.
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
    headers |= target.access.credentials.http_headers()
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
                    # Brokers log each internal error and each change request with its request id.
                    if error.code == 500 or (error.code > 500 and method != "GET"):
                        told = f"{told}; search the broker's log for request_id {request_id}"
                    raise (NotFound if error.code == 404 else click.ClickException)(told) from error
                url, sent_on = urljoin(url, error.headers["Location"]), True
                if only_there:
                    owner = _printable(urlsplit(url).netloc)
                    raise click.ClickException(
                        f"{base} is not a broker and redirects to one of several brokers, {owner}: "
                        "name the broker with --admin-url"
                    ) from error
                if not url.startswith(("http://", "https://")):
                    raise click.ClickException(
                        f"{base} redirects to the invalid URL {_printable(url)!r}"
                    ) from error
                if base.startswith("https://") and url.startswith("http://"):
                    raise click.ClickException(
                        f"{base} redirects to {_printable(urlsplit(url).netloc)} without TLS, which is not "
                        "followed: set webServicePortTls on every broker"
                    ) from error
        except (
            OSError,
            HTTPException,
            UnicodeError,
        ) as error:  # UnicodeError: a host name that cannot be encoded.
            reason = http_problem(error) or getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                reason = f"no response within {target.timeout_s:g} s (--request-timeout)"
            elif isinstance(reason, ssl.SSLCertVerificationError):
                reason = (
                    f"its certificate is not accepted: {reason.verify_message}; name its authority with "
                    "--tls-trust-cert-path, or a host that the certificate names"
                )
            elif isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError):
                reason = reason.strerror or reason
            if sent_on:
                owner = _printable("{0.scheme}://{0.netloc}".format(urlsplit(url)))
                raise NoOwner(
                    f"{base} redirects to {owner}, which does not answer: {_printable(reason)}; "
                    "if that broker has just failed, another one takes over within seconds: retry"
                ) from error
            raise NoBroker(
                f"no broker answers at {base}: {_printable(reason)}; start one, or set --admin-url"
            ) from error
    raise click.ClickException(
        f"too many redirects between brokers: {REDIRECTS_MAX}; retry when bundles are assigned"
    )


def _tls(target: Target) -> ssl.SSLContext | None:
    """Return the TLS context; None for the system's defaults."""
    if not target.access.has_tls_settings:
        return None
    from magnetar.common.security.tls.client_context import ClientTls

    try:
        return ClientTls(target.access.files()).context()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _check(target: Target) -> None:
    """Raises UsageError for an invalid URL."""
    try:
        parts = urlsplit(target.admin_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in target.admin_url):
        raise click.UsageError(f"--admin-url {target.admin_url!r} is not a URL; write it as http://HOST:PORT")


def _reason(status: int, body: bytes, path: str) -> str:
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = _printable(body.decode(errors="replace").strip()) or "no reason given"
        return (
            f"{reason} (HTTP {status})"
            f"{_NEXT.get(status, '; check that --admin-url is the HTTP URL of a broker')}"
        )
    what_next = (
        _listing(path, str(reason)) if status == 404 else "" if "again" in reason else _NEXT.get(status, "")
    )
    return f"{reason} (HTTP {status}){what_next}"


def _listing(path: str, reason: str) -> str:
    """Return a hint at the command that lists existing resources, for the one that the broker did not find:
    not always the last one of the path.
    """
    own = path.startswith("/admin/magnetar/")
    parts = [unquote(part) for part in path.split("/")[4 if own else 3 :]]
    missing = reason.partition(" ")[0].lower()
    match parts:
        case ["persistent" | "non-persistent" | "namespaces" | "schemas", tenant, _, *_] if (
            missing == "namespace"
        ):
            command = f"namespaces list {tenant}"
        case ["persistent" | "non-persistent", tenant, namespace, _, "subscription", *_] if (
            missing == "topic"
        ):
            command = f"topics list {tenant}/{namespace}"
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
    return f"; `magnetar admin {command}` lists existing ones"


def _printable(reason: object) -> str:
    """Return an untrusted text without control characters, truncated when it is long."""
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
    """Return the REST path of a 'namespace' or 'topic'. Raises BadParameter."""
    return namespace_path(text) if level == "namespace" else topic_path(text)


def subscription_path(topic: str, subscription: str) -> str:
    """Return the REST path of a subscription; the API requires its name to be encoded twice."""
    return f"{topic_path(topic)}/subscription/{quote(quote(subscription, safe=''), safe='')}"


def show(target: Target, title: str, value: Any, *, asked: bool = False) -> None:
    """Print a response: drawn on a terminal, JSON for programs. Prints None only if `asked` is set."""
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
    """Return whether a value is a flat record."""
    return isinstance(value, dict) and not any(isinstance(each, dict) for each in value.values())


def _cell(value: Any) -> Any:
    """Return a value as text; nested values as JSON."""
    return json.dumps(value) if isinstance(value, dict | list | bool) else value
