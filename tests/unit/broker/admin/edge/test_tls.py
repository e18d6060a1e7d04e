"""HTTPS: calls with TLS stay with TLS when they are sent on, and brokers call each other with it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.broker.admin.edge.peers import Peers
from magnetar.broker.admin.edge.server import HttpEdge
from magnetar.broker.admin.table import routes
from magnetar.common.errors import ServiceNotReady
from magnetar.common.security.certificates import Authority
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.security.tls.ports import TlsPorts

from tests.unit.broker.admin.fake_cluster import FakeCluster, registration
from tests.unit.common.security.tls.peers import Files

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

STATS = "/admin/v2/persistent/acme/demo/t/stats"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "tls").mkdir()
    return Files(tmp_path / "tls")


@asynccontextmanager
async def https(http: Http, files: Files) -> AsyncIterator[str]:
    """The same broker's HTTP behind a TLS port; gives the port's address."""
    tls = TlsPorts(files.config)
    edge = HttpEdge(http.broker, routes(http.broker))
    listening = socket.create_server(("127.0.0.1", 0))
    await edge.start(listening, tls.web)
    try:
        yield f"https://localhost:{listening.getsockname()[1]}"
    finally:
        await edge.close()
        await tls.close()
        listening.close()


async def location(http: Http, base: str, context: ssl.SSLContext) -> str:
    url = f"{base}{STATS}"
    async with http.client.get(url, ssl=context, allow_redirects=False) as response:
        return response.headers.get("Location", f"{response.status} {await response.text()}")


def test_a_call_with_tls_is_sent_on_with_tls_alone(serving: Serving, files: Files) -> None:
    async def body(http: Http) -> None:
        owner = registration("other:8080")
        async with https(http, files) as base:
            http.broker.cluster = FakeCluster([owner])
            context = files.client()
            refused = await location(http, base, context)
            assert refused.startswith("503 ")
            assert "other:8080, which has no HTTPS address" in refused
            owner.addresses.http_url_tls = "https://other:8443"
            assert await location(http, base, context) == f"https://other:8443{STATS}?authoritative=true"
            assert await location(http, http.base, context) == f"http://other:8080{STATS}?authoritative=true"
            owner.addresses.http_url = ""
            assert await location(http, http.base, context) == f"https://other:8443{STATS}?authoritative=true"

    serving(body)


@pytest.mark.parametrize(("tls_enabled", "plain_too"), [(False, False), (True, True)])
def test_brokers_call_each_other_with_tls_where_it_is_wanted_or_all_there_is(
    serving: Serving, files: Files, tls_enabled: bool, plain_too: bool
) -> None:
    async def body(http: Http) -> None:
        async with https(http, files) as base:
            broker = registration("other:8080", "http://127.0.0.1:1" if plain_too else "")
            broker.addresses.http_url = "http://127.0.0.1:1" if plain_too else ""
            broker.addresses.http_url_tls = base
            client = BrokerClientConfig(
                tls_enabled=tls_enabled, trust_certs_file=files.config.trust_certs_file
            )
            peers = Peers(lambda broker_id, run: True, client=client)
            try:
                assert "standalone" in await peers.ask(broker, "GET", "/admin/v2/clusters")
            finally:
                await peers.close()

    serving(body)


def test_a_broker_that_is_not_trusted_is_not_called(serving: Serving, files: Files) -> None:
    async def body(http: Http) -> None:
        other = files.directory / "other.pem"
        other.write_bytes(Authority("other").certificate)
        async with https(http, files) as base:
            broker = registration("other:8080")
            broker.addresses.http_url_tls = base
            for trusted in (str(other), "/nowhere.pem"):
                client = BrokerClientConfig(tls_enabled=True, trust_certs_file=trusted)
                peers = Peers(lambda broker_id, run: True, client=client)
                with pytest.raises(ServiceNotReady):
                    await peers.ask(broker, "GET", "/admin/v2/clusters")
                await peers.close()

    serving(body)
