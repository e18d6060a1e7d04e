"""The calls that make and remove the namespace of a test."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from magnetar.testing.namespaces import AdminCallFailed, create_namespace, remove_namespace


class Admin(HTTPServer):
    """Records calls and answers each with the same status."""

    status = 204
    body = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Admin

    def answer(self) -> None:
        self.server.calls.append((self.command, self.path, self.headers.get("Authorization")))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_namespace_is_named_for_its_test_and_unlike_all_others(admin: Admin) -> None:
    names = [create_namespace(admin.url, "test_orders[a/b c]", {"Authorization": "Bearer t"}) for _ in "12"]
    assert all(re.fullmatch(r"public/test-orders-a-b-c-[0-9a-f]{8}", name) for name in names)
    assert len(set(names)) == 2
    assert admin.calls == [("PUT", f"/admin/v2/namespaces/{name}", "Bearer t") for name in names]


def test_the_name_of_a_namespace_is_bounded_and_never_empty(admin: Admin) -> None:
    assert len(create_namespace(admin.url, "x" * 500)) < 90
    assert re.fullmatch(r"public/test-[0-9a-f]{8}", create_namespace(admin.url, "[]"))


@pytest.mark.parametrize("status", [204, 404])
def test_a_namespace_is_removed_with_force_and_may_be_gone(admin: Admin, status: int) -> None:
    admin.status = status
    remove_namespace(admin.url, "public/a", {"Authorization": "Bearer t"})
    assert admin.calls == [("DELETE", "/admin/v2/namespaces/public/a?force=true", "Bearer t")]


def test_a_refusal_has_its_status_and_reason(admin: Admin) -> None:
    admin.status, admin.body = 401, b'{"reason": "credentials required"}'
    with pytest.raises(AdminCallFailed, match=r"status 401: .*credentials required"):
        create_namespace(admin.url)
    with pytest.raises(AdminCallFailed, match=r"DELETE .* status 401"):
        remove_namespace(admin.url, "public/a")
