"""What this broker makes of the answers of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from magnetar.broker.admin.edge import peers
from magnetar.broker.admin.edge.call import PRINCIPAL
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import Peers
from magnetar.common.errors import ServiceNotReady, TopicNotFound
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.security.principal import Principal
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig

from tests.unit.broker.admin.fake_cluster import OtherBroker, answered, registration


def asking(
    answers: list[bytes],
    body: Callable[[Peers, BrokerRegistration, OtherBroker], Awaitable[None]],
    gone: Collection[tuple[str, int]] = (),
    **more: Any,
) -> None:
    async def run() -> None:
        other, asker = (
            OtherBroker(answers),
            Peers(lambda broker_id, run: (broker_id, run) not in gone, **more),
        )
        broker = await other.start()
        try:
            await body(asker, broker, other)
        finally:
            await asker.close()
            await other.stop()

    asyncio.run(run())


def test_a_call_goes_out_as_it_was_written_and_its_answer_comes_back() -> None:
    async def body(asker: Peers, broker: BrokerRegistration, other: OtherBroker) -> None:
        found = await asker.ask(broker, "PUT", "/admin/v2/a%252Fb", {"force": "true"}, {"a": 1})
        assert found == [1, 2]
        assert await asker.ask(broker, "DELETE", "/x") is None
        assert other.requests == [
            ("PUT /admin/v2/a%252Fb?force=true&authoritative=true", b'{"a": 1}'),
            ("DELETE /x?authoritative=true", b""),
        ]

    asking([answered(200, b"[1, 2]"), answered(204)], body)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (answered(404, b'{"reason": "Topic x not found"}'), TopicNotFound, "Topic x not found"),
        (answered(412, b'{"reason": "in use"}'), Refused, "in use"),
        (answered(500, b"oh"), Refused, "oh"),
        (answered(503, b'{"reason": "not mine"}'), ServiceNotReady, "not mine"),
        (answered(307), ServiceNotReady, "no reason given"),
        (answered(200, b"{"), ServiceNotReady, "invalid JSON"),
        (b"nonsense\r\n\r\n", ServiceNotReady, "did not answer"),
        (b"", ServiceNotReady, "did not answer"),
    ],
)
def test_a_refusal_is_raised_as_what_it_is(answer: bytes, error: type[Exception], says: str) -> None:
    async def body(asker: Peers, broker: BrokerRegistration, other: OtherBroker) -> None:
        with pytest.raises(error, match=says) as caught:
            await asker.ask(broker, "POST", "/x")
        if isinstance(caught.value, Refused) and says == "in use":
            assert caught.value.status == 412

    asking([answer], body)


def test_a_broker_that_is_not_there_or_says_nothing_is_named() -> None:
    async def body(asker: Peers, broker: BrokerRegistration, other: OtherBroker) -> None:
        with pytest.raises(ServiceNotReady, match=f"{broker.broker_id} did not answer"):
            await asker.ask(broker, "GET", "/x")
        nowhere = registration("b:1")
        nowhere.addresses.http_url = ""
        with pytest.raises(ServiceNotReady, match="no HTTP address"):
            await asker.ask(nowhere, "GET", "/x")

    asking([b" "], body, call_s=0.2)


def test_an_answer_that_is_too_long_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ANSWER_BYTES_MAX", 10)

    async def body(asker: Peers, broker: BrokerRegistration, other: OtherBroker) -> None:
        with pytest.raises(ServiceNotReady, match="more than 10 bytes"):
            await asker.ask(broker, "GET", "/x")

    asking([answered(200, b"[" + b" " * 20 + b"]")], body)


def test_requests_do_not_wait_for_a_broker_that_left_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "LOOK_S", 0.01)
    gone: set[tuple[str, int]] = set()

    async def body(asker: Peers, broker: BrokerRegistration, other: OtherBroker) -> None:
        asked = asyncio.create_task(asker.ask(broker, "GET", "/x"))
        while not other.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not asked.done(), "it stands still, and may go on"
        with pytest.raises(ServiceNotReady, match=r"b2:1 did not answer \(Connection refused\)"):
            await asker.ask(registration("b2:1", "http://127.0.0.1:1"), "GET", "/x")
        gone.add((broker.broker_id, broker.run))
        with pytest.raises(ServiceNotReady, match=f"{broker.broker_id} left the cluster"):
            await asked

    asking([b"HTTP/1.1 200 X\r\n"], body, gone)


def request_of(headers: dict[str, str], principal: Principal | None) -> web.Request:
    found = make_mocked_request("GET", "/", headers=headers)
    if principal is not None:
        found[PRINCIPAL] = principal
    return found


@pytest.mark.parametrize(
    ("headers", "principal", "sent"),
    [
        ({}, None, {"Authorization": "Bearer ours"}),
        ({}, Principal("alice"), {"Authorization": "Bearer ours", "X-Original-Principal": "alice"}),
        (
            {},
            Principal("proxy", "alice"),
            {"Authorization": "Bearer ours", "X-Original-Principal": "alice"},
        ),
        ({"Authorization": "Bearer theirs"}, Principal("alice"), {"Authorization": "Bearer theirs"}),
        (
            {
                "Authorization": "Basic x",
                "X-Pulsar-Auth-Method-Name": "basic",
                "X-Original-Principal": "admin",
            },
            Principal("alice"),
            {"Authorization": "Basic x", "X-Pulsar-Auth-Method-Name": "basic"},
        ),
        # A proxy's own credentials say nothing of its client.
        (
            {"Authorization": "Bearer theirs", "X-Original-Principal": "alice"},
            Principal("proxy", "alice"),
            {"Authorization": "Bearer theirs", "X-Original-Principal": "alice"},
        ),
        # Beside our certificate, method tls would make the caller this broker.
        (
            {"Authorization": "Bearer any", "X-Pulsar-Auth-Method-Name": "tls"},
            Principal("alice", method="tls"),
            {"Authorization": "Bearer ours", "X-Original-Principal": "alice"},
        ),
    ],
)
def test_the_caller_s_credentials_go_on_and_else_ours_with_the_caller_s_role(
    headers: dict[str, str], principal: Principal | None, sent: dict[str, str]
) -> None:
    client = BrokerClientConfig(plugin="token", parameters="token:ours")

    async def run() -> None:
        asker = Peers(lambda broker_id, run: True, client=client)
        assert asker._credentials(request_of(headers, principal)) == sent
        await asker.close()

    asyncio.run(run())


def test_without_security_calls_carry_no_credentials() -> None:
    async def run() -> None:
        asker = Peers(lambda broker_id, run: True)
        assert asker._credentials(request_of({}, None)) == {}
        assert asker._credentials(None) == {}
        await asker.close()

    asyncio.run(run())
