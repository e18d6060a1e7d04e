"""Connections of a client: which hosts are tried, shared, and asked for behind a proxy."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.client.connection.pool import ConnectionPool
from magnetar.client.errors import ClientError, ConnectionLost, NoCredentials, OwnerUnreachable
from magnetar.client.options import ClientOptions, Tls

from tests.unit.client.model_broker import Broker, Cluster
from tests.unit.client.virtual_network import VirtualNetwork, virtually


def pool(url: str, **options: object) -> ConnectionPool:
    return ConnectionPool(ClientOptions(service_url=url, **options))  # type: ignore[arg-type]


def hosts(network: VirtualNetwork) -> list[str]:
    return [host for host, _, _ in network.dialed]


def test_any_reachable_host_suffices_and_stays_the_one_that_is_asked() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        Broker(Cluster(), network, "two")
        connections = pool("pulsar://one,two,three")
        connections._first = 0
        for _ in range(3):
            assert (await connections.to_service()).address == "two:6650"
        assert hosts(network) == ["one", "two"]
        await connections.close()

    virtually(scenario)


def test_when_no_host_answers_all_are_named() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        connections = pool("pulsar://one,two:1")
        with pytest.raises(ConnectionLost) as caught:
            await connections.to_service()
        for part in ("connect to one:6650", "connect to two:1", "start a broker"):
            assert part in str(caught.value)
        await connections.close()

    virtually(scenario)


def test_clients_begin_with_different_hosts() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        for name in ("one", "two"):
            Broker(Cluster(), network, name)
        for _ in range(30):
            connections = pool("pulsar://one,two")
            await connections.to_service()
            await connections.close()
        assert set(hosts(network)) == {"one", "two"}

    virtually(scenario)


def test_calls_share_a_connection_and_open_another_one_when_it_is_lost() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        connections = pool(broker.url)
        first, second = await asyncio.gather(connections.to_service(), connections.to_broker(broker.url))
        assert first is second
        network.reset_all()
        await asyncio.sleep(1)
        assert await connections.to_service() is not first
        assert len(network.dialed) == 2
        await connections.close()

    virtually(scenario)


def test_several_connections_take_turns() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        connections = pool(broker.url, connections_per_broker=3)
        found = [await connections.to_service() for _ in range(6)]
        assert len({id(each) for each in found}) == 3
        assert found[:3] == found[3:]
        await connections.close()
        assert all(each.lost is not None for each in found)

    virtually(scenario)


def test_a_call_that_is_canceled_does_not_take_the_connection_from_others() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        connections = pool(broker.url)
        first, second = (asyncio.ensure_future(connections.to_service()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).lost is None
        assert len(network.dialed) == 1
        await connections.close()

    virtually(scenario)


def test_an_owner_that_is_gone_is_another_error_than_a_service_that_is() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        connections = pool("pulsar://one")
        with pytest.raises(OwnerUnreachable, match="cannot connect to gone:6650"):
            await connections.to_broker("pulsar://gone:6650")
        await connections.close()
        with pytest.raises(ConnectionLost, match="the client is closed"):
            await connections.to_service()

    virtually(scenario)


def test_missing_credentials_are_not_asked_for_at_each_host() -> None:
    class Missing:
        method = "token"
        blocks = False
        asked = 0

        def secret(self) -> bytes:
            self.asked += 1
            raise OSError("no token")

    async def scenario(network: VirtualNetwork) -> None:
        missing = Missing()
        connections = pool("pulsar://one,two", authentication=missing)
        with pytest.raises(NoCredentials, match="no token"):
            await connections.to_service()
        assert missing.asked == 1
        assert network.dialed == []
        await connections.close()

    virtually(scenario)


def test_behind_a_proxy_brokers_are_named_by_tls() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        Broker(Cluster(), network, "proxy")
        connections = pool("pulsar://one", proxy_url="pulsar+ssl://proxy:6650", tls=Tls(allow_insecure=True))
        await connections.to_service()
        await connections.to_broker("pulsar+ssl://two:6651")
        assert network.dialed == [("proxy", 6650, "one"), ("proxy", 6650, "two")]
        await connections.close()
        with pytest.raises(ClientError, match=r"has no TLS: .* give pulsar\+ssl://host:port"):
            pool("pulsar://one", proxy_url="pulsar://proxy:6650")

    virtually(scenario)


def test_tls_names_the_host_and_certificates_that_cannot_be_used_are_told_at_once() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        Broker(Cluster(), network)
        connections = pool("pulsar+ssl://broker:6650", tls=Tls(allow_insecure=True))
        await connections.to_service()
        assert network.dialed == [("broker", 6650, "broker")]
        await connections.close()
        with pytest.raises(ClientError, match=r"/missing\.pem"):
            pool("pulsar+ssl://broker", tls=Tls(trust_certs_file="/missing.pem"))

    virtually(scenario)


def test_a_broker_behind_the_service_is_named_when_connecting() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        connections = pool(broker.url)
        plain = await connections.to_service()
        behind = await connections.to_service(behind="pulsar://inside:6650")
        assert plain is not behind
        assert [each.proxy_to_broker_url for each in broker.of("connect")] == ["", "inside:6650"]
        await connections.close()

    virtually(scenario)


def test_closing_ends_attempts_that_are_under_way() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        network.hanging.add(("one", 6650))
        connections = pool("pulsar://one")
        connecting = asyncio.ensure_future(connections.to_service())
        await asyncio.sleep(1)
        await connections.close()
        found = await asyncio.gather(connecting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError | ConnectionLost)

    virtually(scenario)
