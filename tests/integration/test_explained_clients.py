"""A broker explains which clients it refused or closed lately, over HTTP and on the command line."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from magnetar.cli.main import main

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, payload_frame
from tests.integration.rest import Rest
from tests.integration.test_explain import codes, explained, run_explain

EXCLUSIVE_WITH_FENCING = "ExclusiveWithFencing"


def ends(endpoint: Endpoint, topic: str) -> list[dict[str, Any]]:
    """The reasons of a topic's clients, the latest first; each has a text and a next step."""
    found = explained(endpoint, topic, "clients/explain")["reasons"]
    assert all(each["text"] and each["next"] and each["code"] for each in found)
    return list(found)


def connections(endpoint: Endpoint, asked: str = "") -> Any:
    return Rest(endpoint, root="/admin/magnetar/v1").get(f"/connections/explain?address={asked}")


def address_of(c: Line) -> str:
    host, port = c.socket.getsockname()[:2]
    return f"{host}:{port}"


def until_ended(endpoint: Endpoint, address: str, code: str) -> dict[str, Any]:
    """The end of a connection, once the broker has noticed it; the test's time limit bounds the wait."""
    while True:
        for each in connections(endpoint, address)["reasons"]:
            if each["code"] == code and each["data"].get("kind") == "connection":
                return dict(each)


def path_of(topic: str) -> str:
    return f"/{topic.replace('://', '/')}"


def test_nothing_ended(endpoint: Endpoint, topic: str, our_contract: None) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        found = explained(endpoint, topic, "clients/explain")
        assert (codes(found), found["producers"], found["consumers"]) == (["nothing_ended"], 1, 1)
        assert "\nnothing_ended\t" in run_explain(endpoint, "clients", topic)


def test_a_refused_consumer_is_explained_with_its_error_and_the_next_step(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        for _ in range(3):
            request = c.ask_subscribe(topic, consumer_id=2, consumer_name="late")
            message = c.expect_error(request, "ConsumerBusy")
        (reason,) = ends(endpoint, topic)
        assert (reason["code"], reason["data"]["error"], reason["data"]["times"]) == (
            "refused",
            "ConsumerBusy",
            3,
        )
        assert reason["data"]["address"] == address_of(c)
        assert (reason["data"]["name"], reason["data"]["subscription"]) == ("late", "sub")
        assert reason["data"]["clientVersion"] == "raw"
        assert message in reason["text"]
        assert "Shared" in reason["next"]
        rows = run_explain(endpoint, "clients", topic).splitlines()
        assert rows[1].split("\t") == [
            "refused",
            reason["since"],
            "consumer",
            "late",
            address_of(c),
            reason["text"],
            reason["next"],
        ]
        found = json.loads(run_explain(endpoint, "clients", topic, "--json"))
        assert found == explained(endpoint, topic, "clients/explain")


def test_a_refused_producer_and_a_refused_lookup(endpoint: Endpoint, topic: str, our_contract: None) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, producer_name="same")
        c.expect_error(c.ask_producer(topic, 2, producer_name="same"), "ProducerBusy")
        (reason,) = ends(endpoint, topic)
        assert (reason["data"]["kind"], reason["data"]["error"]) == ("producer", "ProducerBusy")
        request = c.request("lookupTopic", topic="persistent://public/absent/t")
        c.receive()
        assert request
        found = connections(endpoint, address_of(c))["reasons"]
        assert [each["data"]["kind"] for each in found if each["code"] == "refused"] == ["lookup", "producer"]


def closed_by_client(endpoint: Endpoint, c: Line, topic: str) -> None:
    c.send("close_producer", producer_id=1, request_id=100)
    c.expect("success", request_id=100)
    c.send("close_consumer", consumer_id=1, request_id=101)
    c.expect("success", request_id=101)


def replaced(endpoint: Endpoint, c: Line, topic: str) -> None:
    c.open_producer(topic, epoch=1, producer_name="named")


def unloaded(endpoint: Endpoint, c: Line, topic: str) -> None:
    assert Rest(endpoint).call("PUT", f"{path_of(topic)}/unload").status == 204


def deleted(endpoint: Endpoint, c: Line, topic: str) -> None:
    assert Rest(endpoint).call("DELETE", f"{path_of(topic)}?force=true").status == 204


def terminated(endpoint: Endpoint, c: Line, topic: str) -> None:
    assert Rest(endpoint).call("POST", f"{path_of(topic)}/terminate").status == 200


def fenced(endpoint: Endpoint, c: Line, topic: str) -> None:
    with line(endpoint) as other:
        other.open_producer(topic, producer_access_mode=EXCLUSIVE_WITH_FENCING)


def message_refused(endpoint: Endpoint, c: Line, topic: str) -> None:
    c.send_bytes(payload_frame(1, 0, b"damaged", checksum_xor=1))
    while c.receive().name != "close_producer":
        pass


def unsubscribed(endpoint: Endpoint, c: Line, topic: str) -> None:
    assert Rest(endpoint).call("DELETE", f"{path_of(topic)}/subscription/sub?force=true").status == 204


def cursor_reset(endpoint: Endpoint, c: Line, topic: str) -> None:
    assert Rest(endpoint).call("POST", f"{path_of(topic)}/subscription/sub/resetcursor/0").status == 204


def backlog_quota(endpoint: Endpoint, c: Line, topic: str) -> None:
    c.publish(b"more than the quota")
    quota = {"limitSize": 1, "policy": "producer_exception"}
    rest = Rest(endpoint)
    assert rest.call("POST", f"{path_of(topic)}/backlogQuota", quota).status == 204
    assert rest.call("GET", "/brokers/backlog-quota-check").status in (200, 204)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (closed_by_client, {"closed_by_client"}),
        (replaced, {"replaced"}),
        (unloaded, {"unloaded"}),
        (deleted, {"topic_deleted"}),
        (terminated, {"topic_terminated"}),
        (fenced, {"fenced", "connection_ended"}),
        (message_refused, {"message_refused"}),
        (unsubscribed, {"unsubscribed"}),
        (cursor_reset, {"cursor_reset"}),
        (backlog_quota, {"backlog_quota"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_end_of_a_producer_or_consumer(
    endpoint: Endpoint,
    topic: str,
    our_contract: None,
    end: Callable[[Endpoint, Line, str], None],
    expected: set[str],
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, producer_name="named")
        c.subscribe(topic)
        end(endpoint, c, topic)
        found = ends(endpoint, topic)
        assert expected - {"connection_ended"} <= {each["code"] for each in found} <= expected
        mine = [each for each in found if each["data"]["address"] == address_of(c)]
        assert {each["data"]["kind"] for each in mine} <= {"producer", "consumer"}
        assert mine
        assert all(each["data"]["topic"] == topic for each in mine)


def test_an_unencrypted_producer_is_closed_when_encryption_is_required(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    rest = Rest(endpoint)
    assert rest.call("PUT", "/namespaces/public/encrypted").status in (204, 409)
    there = topic.replace("/default/", "/encrypted/")
    with line(endpoint) as c:
        c.open_producer(there)
        assert rest.call("POST", "/namespaces/public/encrypted/encryptionRequired", True).status == 204
        c.expect("close_producer", producer_id=1)
        (reason,) = ends(endpoint, there)
        assert reason["code"] == "encryption_required"
    assert rest.call("POST", "/namespaces/public/encrypted/encryptionRequired", False).status == 204


def test_a_connection_that_the_client_closed_or_lost(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, producer_name="gone")
        address = address_of(c)
    ended = until_ended(endpoint, address, "connection_ended")
    assert (ended["data"]["address"], ended["data"]["clientVersion"]) == (address, "raw")
    assert [(each["code"], each["data"]["name"]) for each in ends(endpoint, topic)] == [
        ("connection_ended", "gone")
    ]
    with line(endpoint) as c:
        c.open_producer(topic, producer_name="cut")
        address = address_of(c)
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lost = until_ended(endpoint, address, "connection_lost")
    assert lost["data"]["message"]
    assert (ends(endpoint, topic)[0]["code"], ends(endpoint, topic)[0]["data"]["name"]) == (
        "connection_lost",
        "cut",
    )


def test_protocol_errors_and_clients_too_old_to_be_told(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint, connected=False) as c:
        c.send("ping")
        c.expect_closed()
        (reason,) = connections(endpoint, address_of(c))["reasons"]
        assert reason["code"] == "protocol_error"
        assert "not CONNECT" in reason["text"]
    with line(endpoint, connected=False) as c:
        c.connect(protocol_version=4)
        c.open_producer(topic)
        unloaded(endpoint, c, topic)
        c.expect_closed()
        (reason,) = [
            each
            for each in connections(endpoint, address_of(c))["reasons"]
            if each["data"]["kind"] == "connection"
        ]
        assert reason["code"] == "old_protocol"
        assert [each["code"] for each in ends(endpoint, topic)] == ["unloaded"]


def test_an_open_connection_is_explained_by_address_and_by_id(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, producer_name="mine")
        c.subscribe(topic)
        found = connections(endpoint, address_of(c))
        assert (codes(found), found["open"], found["ended"]) == (["connected"], 1, 0)
        (shown,) = found["connections"]
        assert [each["name"] for each in shown["producers"]] == ["mine"]
        assert [each["heldBackBy"] for each in shown["consumers"]] == ["no_permits"]
        assert (shown["read"], shown["writable"], shown["role"]) == (True, True, None)
        by_id = connections(endpoint, str(shown["connectionId"]))
        assert [each["address"] for each in by_id["connections"]] == [address_of(c)]
        printed = run_explain(endpoint, "connection", address_of(c))
        assert "\nconnected\t" in printed
        assert f"consumer\t{topic}\tsub\t" in printed
        assert json.loads(run_explain(endpoint, "connection", address_of(c), "--json"))["open"] == 1


def test_a_connection_that_the_broker_does_not_read_from(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    rest = Rest(endpoint)
    assert rest.call("PUT", path_of(topic)).status == 204
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    assert rest.call("POST", f"{path_of(topic)}/publishRate", rate).status == 204
    with line(endpoint) as c:
        c.open_producer(topic)
        c.send_bytes(b"".join(payload_frame(1, n, b"more than the rate") for n in range(50)))
        while "not_read" not in codes(found := connections(endpoint, address_of(c))):
            pass
        (reason,) = [each for each in found["reasons"] if each["code"] == "not_read"]
        assert reason["data"]["cause"] == "publish rate"
        assert reason["next"]


def test_a_connection_whose_client_does_not_read(endpoint: Endpoint, topic: str, our_contract: None) -> None:
    with line(endpoint) as c, line(endpoint) as writer:
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.subscribe(topic)
        writer.open_producer(topic)
        c.flow(1000)
        for first in range(0, 300, 10):
            writer.publish(*[b"x" * 100_000] * 10, first=first)
        while "socket_full" not in codes(found := connections(endpoint, address_of(c))):
            pass
        (reason,) = [each for each in found["reasons"] if each["code"] == "socket_full"]
        assert reason["next"]
        assert reason["since"]


def test_an_unknown_connection_is_said_to_be_unknown(endpoint: Endpoint, our_contract: None) -> None:
    found = connections(endpoint, "192.0.2.1:9")
    assert codes(found) == ["no_such_connection"]
    assert found["reasons"][0]["next"]
    done = CliRunner().invoke(
        main, ["explain", "--admin-url", endpoint.http_url, "connection", "192.0.2.1:9"]
    )
    assert done.exit_code == 0
    assert "no_such_connection" in done.output


def test_the_partitions_of_a_topic_have_their_own_ends(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    assert Rest(endpoint).call("PUT", f"{path_of(topic)}/partitions", 2).status == 204
    with line(endpoint) as c:
        c.subscribe(f"{topic}-partition-1")
        c.expect_error(c.ask_subscribe(f"{topic}-partition-1", consumer_id=2), "ConsumerBusy")
        found = explained(endpoint, topic, "clients/explain")
        assert codes(found["partitions"][f"{topic}-partition-1"]) == ["refused"]
        rows = run_explain(endpoint, "clients", topic).splitlines()
        assert rows[1].startswith(f"{topic}-partition-1\trefused\t")
