"""A broker explains what does not move, over HTTP and on the command line."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from click.testing import CliRunner
from magnetar.cli.main import main

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line
from tests.integration.rest import Rest


def explained(endpoint: Endpoint, topic: str, rest: str = "subscription/sub/explain") -> Any:
    own = Rest(endpoint, root="/admin/magnetar/v1")
    return own.get(f"/{topic.replace('://', '/')}/{rest}")


def codes(found: Any) -> list[str]:
    return [each["code"] for each in found["reasons"]]


def run_explain(endpoint: Endpoint, *arguments: str) -> str:
    """Runs a command of `magnetar explain` in this process; returns what it printed."""
    done = CliRunner().invoke(main, ["explain", "--admin-url", endpoint.http_url, *arguments])
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def test_a_subscription_is_explained_over_http_and_on_the_command_line(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        assert codes(explained(endpoint, topic)) == ["nothing_to_deliver"]
        c.publish(b"first")
        found = explained(endpoint, topic)
        (reason,) = found["reasons"]
        assert (reason["code"], reason["stops"], found["moves"], found["backlog"]) == (
            "no_permits",
            True,
            False,
            1,
        )
        since = datetime.fromisoformat(reason["since"]).timestamp()
        assert abs(since - time.time()) < 60
        assert found["consumers"][0]["heldBackBy"] == "no_permits"
        (row,) = run_explain(endpoint, "subscription", topic, "sub").splitlines()[1:]
        assert row.split("\t") == ["no_permits", reason["since"], reason["text"], reason["next"]]
        assert json.loads(run_explain(endpoint, "subscription", topic, "sub", "--json")) == found
        c.flow(1)
        c.expect("message")
        assert codes(explained(endpoint, topic)) == ["no_permits", "waiting_for_acks"]
        c.flow(10)
        assert codes(explained(endpoint, topic)) == ["waiting_for_acks"]
    with line(endpoint) as c:
        c.open_producer(topic)
        assert codes(explained(endpoint, topic)) == ["no_consumer"]


def test_the_partitions_of_a_topic_are_explained_one_by_one(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    assert Rest(endpoint).call("PUT", f"/{topic.replace('://', '/')}/partitions", 2).status == 204
    with line(endpoint) as c:
        c.subscribe(f"{topic}-partition-0")
        found = explained(endpoint, topic)
        assert list(found["partitions"]) == [f"{topic}-partition-0"]
        assert codes(found["partitions"][f"{topic}-partition-0"]) == ["nothing_to_deliver"]
        assert f"{topic}-partition-0\tnothing_to_deliver\t" in run_explain(
            endpoint, "subscription", topic, "sub"
        )


def test_what_does_not_exist_is_said_with_what_does(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        done = CliRunner().invoke(
            main, ["explain", "--admin-url", endpoint.http_url, "subscription", topic, "absent"]
        )
    assert done.exit_code == 1
    assert f"Subscription absent not found for topic {topic}" in done.output
    assert "magnetar admin topics subscriptions" in done.output


def test_the_ledgers_of_a_topic_and_of_a_namespace_are_explained(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(b"first")
        found = explained(endpoint, topic, "storage/explain")
        internals = Rest(endpoint).get(f"/{topic.replace('://', '/')}/internalStats")
        assert found["bytes"] == found["bytesOnBookies"] == internals["totalSize"] > 0
        assert found["bytesByCode"] == {"open_ledger": found["bytes"]}
        (row,) = run_explain(endpoint, "storage", topic).splitlines()[1:]
        (ledger,) = found["ledgers"]
        assert row.split("\t")[:4] == [str(ledger["ledgerId"]), str(found["bytes"]), "bookies", "open_ledger"]
        rows = run_explain(endpoint, "storage", "public/default").splitlines()
        assert any(row.startswith(f"{topic}\t{ledger['ledgerId']}\t") for row in rows)


def test_policies_are_explained_with_their_levels(endpoint: Endpoint, topic: str, our_contract: None) -> None:
    rest, path = Rest(endpoint), f"/{topic.replace('://', '/')}"
    assert rest.call("PUT", path).status == 204
    assert rest.call("POST", f"{path}/messageTTL?messageTTL=77").status == 204
    found = {each["name"]: each for each in explained(endpoint, topic, "policies/explain")["policies"]}
    ttl = found["message_ttl_s"]
    assert (ttl["level"], ttl["value"], ttl["withoutTopic"], ttl["withoutNamespace"]) == ("topic", 77, 0, 0)
    assert found["retention"]["level"] == "broker"
    (row,) = run_explain(endpoint, "policies", topic, "message_ttl_s").splitlines()[1:]
    assert row.split("\t") == ["message_ttl_s", "77", "topic", "0", "0"]
    done = CliRunner().invoke(
        main, ["explain", "--admin-url", endpoint.http_url, "policies", topic, "no_such"]
    )
    assert done.exit_code == 2
    assert "no policy 'no_such': they are auto_subscription_creation, " in done.output


def test_a_topic_of_a_standalone_has_one_place(endpoint: Endpoint, topic: str, our_contract: None) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
    found = explained(endpoint, topic, "explain")
    assert codes(found) == ["sole_broker"]
    assert (found["moves"], found["brokers"]) == ([], [])
    (row,) = run_explain(endpoint, "topic", topic).splitlines()[1:]
    assert row.startswith("here\tsole_broker\t\ta standalone has one broker")


def test_a_publish_rate_that_holds_a_producer_back_is_explained(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    rest, path = Rest(endpoint), f"/{topic.replace('://', '/')}"
    assert rest.call("PUT", path).status == 204
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    assert rest.call("POST", f"{path}/publishRate", rate).status == 204
    with line(endpoint) as c:
        c.open_producer(topic)
        for _ in range(3):
            c.publish(b"more than the rate")
        found = explained(endpoint, topic, "publishes/explain")
        assert "not_read" in codes(found), found
        (paused,) = [each for each in found["reasons"] if each["code"] == "not_read"]
        assert paused["data"]["cause"] == "publish rate"
        assert "\tnot_read\t" in f"\t{run_explain(endpoint, 'publishes', topic)}".replace("\n", "\t")


def test_a_ledger_a_bookie_and_a_bundle_of_a_standalone_are_explained(
    endpoint: Endpoint, topic: str, our_contract: None
) -> None:
    own = Rest(endpoint, root="/admin/magnetar/v1")
    with line(endpoint) as c:
        c.open_producer(topic)
        c.publish(b"first")
        (ledger,) = explained(endpoint, topic, "storage/explain")["ledgers"]
        ledger_id = str(ledger["ledgerId"])
        found = own.get(f"/ledgers/{ledger_id}/explain")
        assert (found["topic"], found["kind"], codes(found)) == (topic, "entries", ["local_copy"])
        (row,) = run_explain(endpoint, "ledger", ledger_id).splitlines()[1:]
        assert row.startswith("local_copy\t")
        assert json.loads(run_explain(endpoint, "ledger", ledger_id, "--json")) == found
        (row,) = run_explain(endpoint, "bookie", "any:3181").splitlines()[1:]
        assert row.startswith("local_log\t")
        bundle = explained(endpoint, topic, "explain")["bundle"]
        rows = run_explain(endpoint, "bundle", f"public/default/{bundle}").splitlines()
        assert rows[1].startswith("here\tsole_broker\t")
        found = json.loads(run_explain(endpoint, "bundle", f"public/default/{bundle}", "--json"))
        assert topic in [each["topic"] for each in found["topics"]]
    assert "does not exist" in own.refused(404, "GET", "/ledgers/999999999/explain")
    assert "a number is expected" in own.refused(412, "GET", "/ledgers/x/explain")
    assert "at most 63 bits" in own.refused(412, "GET", f"/ledgers/{10**20 - 1}/explain")
    assert "no bundle" in own.refused(412, "GET", "/namespaces/public/default/0x00000001_0x00000002/explain")
