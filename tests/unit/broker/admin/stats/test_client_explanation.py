"""Ends of connections that a broker refuses or closes, and hints for every end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from magnetar.broker.admin.stats import client_explanation
from magnetar.broker.admin.stats.client_explanation import end_reason
from magnetar.broker.client_endings import ClientEnd, ClientKind, EndCode
from magnetar.broker.handlers import transactions
from magnetar.common.errors import TransactionCoordinatorNotFound
from magnetar.common.security.tls.ports import TlsPorts

from tests.unit.broker.handlers.test_connect import OLD, connect
from tests.unit.broker.handlers.test_transactions import World as Coordinated
from tests.unit.broker.topics.world import ListeningPeer
from tests.unit.broker.transport.test_unauthenticated import World, limits
from tests.unit.common.security.tls.peers import Files
from tests.unit.common.wire.frames import simple


def last_end(world: World) -> ClientEnd:
    (end, *_) = world.services.endings.all(0)
    assert (end.kind, end_reason(end, roles=True).next != "") == (ClientKind.CONNECTION, True)
    return end


def test_connections_over_a_limit() -> None:
    async def main() -> None:
        world = World(connections_max=1)
        world.open()
        world.open("10.0.0.9")
        end = last_end(world)
        assert (end.code, end.address, end.connection_id) == (EndCode.CONNECTION_LIMIT, "10.0.0.9:1", 2)
        assert "brokerMaxConnections=1" in end_reason(end, roles=True).text
        await world.listener.close()
        world = World(authentication=limits(unauthenticated_connections_max=1))
        world.open()
        world.open()
        assert last_end(world).code is EndCode.CONNECTION_LIMIT
        await world.listener.close()

    asyncio.run(main())


def test_a_client_that_does_not_connect_in_time() -> None:
    async def main() -> None:
        world = World(authentication=limits(connect_timeout_ms=10))
        connection, _ = world.open()
        async with asyncio.timeout(10):
            while connection.connected:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert last_end(world).code is EndCode.NO_CONNECT
        await world.listener.close()

    asyncio.run(main())


def test_credentials_that_are_wrong_or_no_longer_good() -> None:
    async def main() -> None:
        world = World(authentication=limits(refresh_check_s=1))
        refused, _ = world.open()
        refused.data_received(simple(connect=connect(b"wrong").connect))
        await asyncio.gather(*world.tasks)
        assert last_end(world).code is EndCode.AUTHENTICATION_FAILED
        assert "Failed to authenticate" in last_end(world).message
        connection, _ = world.open()
        connection.data_received(simple(connect=connect(refresh=False).connect))
        await asyncio.gather(*world.tasks)
        connection._look_s = 0.05
        world.now_ms = int(world.tokens.expiry[OLD] * 1000)
        connection._check_alive()
        end = last_end(world)
        assert (end.code, end.role) == (EndCode.CREDENTIALS_ENDED, "alice")
        await world.listener.close()

    asyncio.run(main())


def test_a_tls_handshake_that_fails(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        tls = TlsPorts(Files(tmp_path).config)
        port = world.listener.start_tls("127.0.0.1", 0, tls.binary)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        host, number = writer.get_extra_info("sockname")[:2]
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        end = last_end(world)
        assert (end.code, end.error, end.address) == (
            EndCode.HANDSHAKE_FAILED,
            "plaintext",
            f"{host}:{number}",
        )
        assert "https://" in end.message
        writer.close()
        await world.listener.close()
        await tls.close()

    asyncio.run(main())


def test_a_transaction_coordinator_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "CLOSE_DELAY_S", 0)

    class Closing(ListeningPeer):
        code: EndCode | None = None

        def close(self, reason: str, code: EndCode) -> None:
            self.code = code

    peer = Closing()
    world = Coordinated(peer=peer)
    world.client.client_version = "Pulsar-Go-0.19.0"
    with pytest.raises(TransactionCoordinatorNotFound):
        world.ask("newTxn", tc_id=4)
    assert peer.code is EndCode.COORDINATOR_GONE
    end = ClientEnd(kind=ClientKind.CONNECTION, code=EndCode.COORDINATOR_GONE, at_ms=1, address="a:1")
    assert end_reason(end, roles=False).next


@pytest.mark.parametrize("code", list(EndCode))
def test_every_end_has_words_and_a_next_step(code: EndCode) -> None:
    end = ClientEnd(kind=ClientKind.PRODUCER, code=code, at_ms=1, address="10.0.0.1:5", name="p")
    reason = end_reason(end, roles=True)
    assert reason.next
    assert reason.text.startswith("producer p at 10.0.0.1:5 was ") or reason.text.endswith("connection")


@pytest.mark.parametrize("error", [*client_explanation._REFUSALS, "UnknownError"])
def test_every_refusal_has_a_next_step(error: str) -> None:
    end = ClientEnd(
        kind=ClientKind.CONSUMER, code=EndCode.REFUSED, at_ms=1, address="a:1", error=error, subscription="s"
    )
    assert end_reason(end, roles=True).next
    assert error in end_reason(end, roles=True).text
