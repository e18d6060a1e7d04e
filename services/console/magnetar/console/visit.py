"""One request of a browser, as the pages see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.console.admin_api import Caller
from magnetar.console.browser_safety import form_token
from magnetar.console.errors import BadRequest
from magnetar.console.live_streams import LiveStreams
from magnetar.console.message_reading import MessageReading
from magnetar.console.oidc_login import OidcLogin
from magnetar.console.process_watch import ProcessWatch
from magnetar.console.rendering import render, static_version


@dataclass(frozen=True, slots=True)
class Visit:
    """A request with what its page needs."""

    request: web.Request
    admin: Caller
    streams: LiveStreams
    messages: MessageReading
    watch: ProcessWatch
    oidc: OidcLogin | None
    """Logs visitors in; None: they have tokens."""
    prefix: str
    """Path of the console, before the path of a page; empty at the root."""
    browser: str
    """The number of the browser, of which its forms' token is derived."""
    form: Mapping[str, str] = field(default_factory=dict)
    """Fields of the form that was sent; empty for a GET."""

    @property
    def is_part(self) -> bool:
        """Whether htmx asks, for a part of a page that the browser has open."""
        return "HX-Request" in self.request.headers

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter: of the form, else of the query."""
        return str(self.form.get(name, self.request.query.get(name, default)))

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**53) -> int:
        """Return a whole number. Raises BadRequest for any other text, and outside of low to high."""
        text = self.text(name).strip()
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            raise BadRequest(f"{name} = {text[:80]!r} is not a whole number") from None
        if not low <= number <= high:
            raise BadRequest(f"{name} = {number} is outside of {low} to {high}")
        return number

    def topic(self, name: str = "topic") -> TopicName:
        """Return the topic that a parameter names. Raises BadRequest."""
        try:
            return TopicName.parse(self.text(name))
        except InvalidName as error:
            raise BadRequest(str(error)) from error

    def namespace(self, name: str = "namespace") -> NamespaceName:
        """Return the namespace that a parameter names. Raises BadRequest."""
        try:
            return NamespaceName.parse(self.text(name))
        except InvalidName as error:
            raise BadRequest(str(error)) from error

    def required(self, name: str) -> str:
        """Return a parameter. Raises BadRequest when it is empty."""
        text = self.text(name)
        if not text:
            raise BadRequest(f"{name} is missing")
        return text

    async def page(self, template: str, /, *, status: int = 200, **values: Any) -> web.Response:
        """Return the answer with a page, or a part of one, made from a template."""
        text = await render(template, {**self._common(), **values})
        return web.Response(text=text, content_type="text/html", status=status)

    async def part(self, template: str, /, **values: Any) -> str:
        """Return the text of a part of a page, made from a template."""
        return await render(template, {**self._common(), **values})

    def link(self, path: str) -> str:
        """Return the path of a page as browsers see it."""
        return f"{self.prefix}{path}"

    def redirect(self, path: str) -> web.Response:
        """Return the answer that shows another page after a change."""
        return web.Response(status=303, headers={"Location": self.link(path)})

    def _common(self) -> dict[str, Any]:
        return {
            "prefix": self.prefix,
            "path": self.request.path.removeprefix(self.prefix),
            "form_token": form_token(self.browser),
            "logged_in": bool(self.admin.token),
            "version": static_version(),
        }
