"""Transactions as a client sees them on the wire: coordinators, and ends in topics."""

from __future__ import annotations

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.raw.transaction_line import COORDINATORS, ask, begin, end, error_of, send_in
from tests.integration.raw.transcript import line, payloads

SERVER_SETTINGS = {"transactionCoordinatorEnabled": "true"}

pytestmark = pytest.mark.usefixtures("server")


def test_the_coordinator_is_found_as_a_partition_and_connected_to(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        request_id = c.request("partitionMetadata", topic=COORDINATORS, metadata_auto_creation_enabled=False)
        assert c.expect("partitionMetadataResponse", request_id=request_id).command.partitions == 1
        request_id = c.request("lookupTopic", topic=f"{COORDINATORS}-partition-0")
        answer = c.expect("lookupTopicResponse", request_id=request_id).command
        assert answer.response == pb.CommandLookupTopicResponse.Connect
        request_id = c.request("tcClientConnectRequest", tc_id=0)
        answer = c.expect("tcClientConnectResponse", request_id=request_id).command
        assert not answer.HasField("error")


def test_there_is_no_other_coordinator(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        for name, response in [
            ("tcClientConnectRequest", "tcClientConnectResponse"),
            ("newTxn", "newTxnResponse"),
        ]:
            request_id = c.request(name, tc_id=1)
            answer = c.expect(response, request_id=request_id).command
            assert error_of(answer) == "TransactionCoordinatorNotFound"


def test_ids_are_given_once(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        given = [tuple(begin(c).values()) for _ in range(20)]
        assert len(set(given)) == 20
        assert given == sorted(given)


@pytest.mark.parametrize(("action", "other"), [("COMMIT", "ABORT"), ("ABORT", "COMMIT")])
def test_an_end_may_be_repeated_and_not_changed(endpoint: Endpoint, action: str, other: str) -> None:
    with line(endpoint) as c:
        txn = begin(c)
        assert end(c, txn, action) == ""
        assert end(c, txn, action) == ""
        assert end(c, txn, other) == "InvalidTxnStatus"


def test_a_transaction_that_never_began_is_not_found(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        txn = {"txnid_most_bits": 0, "txnid_least_bits": 2**40}
        assert end(c, txn, "COMMIT") == "TransactionNotFound"
        answer = ask(c, "addPartitionToTxn", partitions=[topic], **txn)
        assert error_of(answer) == "TransactionNotFound"
        added = [{"topic": topic, "subscription": "s"}]
        assert error_of(ask(c, "addSubscriptionToTxn", subscription=added, **txn)) == "TransactionNotFound"


def test_a_time_to_live_of_zero_aborts_at_once(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        txn = begin(c, ttl_ms=0)
        assert end(c, txn, "ABORT") == ""
        assert end(c, txn, "COMMIT") == "InvalidTxnStatus"


def test_a_topic_that_takes_part_and_does_not_exist_does_not_hinder_the_end(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        txn = begin(c)
        assert error_of(ask(c, "addPartitionToTxn", partitions=[topic], **txn)) == ""
        assert end(c, txn, "COMMIT") == ""
        assert error_of(ask(c, "endTxnOnPartition", topic=topic, txn_action="COMMIT", **txn)) == ""
        subscription = {"topic": topic, "subscription": "s"}
        ended = ask(c, "endTxnOnSubscription", subscription=subscription, txn_action="COMMIT", **txn)
        assert error_of(ended) == ""


@pytest.mark.parametrize("name", ["non-persistent://public/default/t", "persistent://pulsar/system/t"])
def test_a_topic_that_cannot_take_part_is_refused(endpoint: Endpoint, name: str) -> None:
    with line(endpoint) as c:
        txn = begin(c)
        answer = ask(c, "addPartitionToTxn", partitions=[name], **txn)
        assert error_of(answer) == "NotAllowedError"
        assert end(c, txn, "ABORT") == ""


@pytest.mark.parametrize("action", ["COMMIT", "ABORT"])
def test_messages_are_delivered_after_the_commit_and_never_after_an_abort(
    endpoint: Endpoint, topic: str, action: str
) -> None:
    with line(endpoint) as c, line(endpoint) as consuming:
        consuming.subscribe(topic)
        consuming.flow(10)
        c.open_producer(topic)
        txn = begin(c)
        assert error_of(ask(c, "addPartitionToTxn", partitions=[topic], **txn)) == ""
        send_in(c, txn, b"in", 0)
        c.publish(b"plain", first=1)
        consuming.expect_quiet()
        assert end(c, txn, action) == ""
        expected = [b"in", b"plain"] if action == "COMMIT" else [b"plain"]
        assert payloads(consuming.expect_messages(len(expected))) == expected
        consuming.expect_quiet()


def test_an_end_in_a_topic_by_a_super_user_settles_it(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c, line(endpoint) as consuming:
        consuming.subscribe(topic)
        consuming.flow(10)
        c.open_producer(topic)
        txn = begin(c)  # its coordinator does not hear of the topic, and does not tell it
        send_in(c, txn, b"in", 0)
        consuming.expect_quiet()
        assert error_of(ask(c, "endTxnOnPartition", topic=topic, txn_action="COMMIT", **txn)) == ""
        assert payloads(consuming.expect_messages(1)) == [b"in"]
        answer = ask(c, "endTxnOnPartition", topic=topic, txn_action="ABORT", **txn)
        assert error_of(answer) == "InvalidTxnStatus"


def test_what_was_decided_and_what_was_open_outlives_the_server(
    server: StandaloneServer, endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        ended, opened = begin(c), begin(c)
        for number, txn in enumerate((ended, opened)):
            assert error_of(ask(c, "addPartitionToTxn", partitions=[topic], **txn)) == ""
            send_in(c, txn, str(number).encode(), number)
        assert end(c, ended, "COMMIT") == ""
    server.kill_and_start()
    with line(endpoint) as c:
        assert end(c, ended, "COMMIT") == ""
        assert end(c, ended, "ABORT") == "InvalidTxnStatus"
        c.subscribe(topic)
        c.flow(10)
        assert payloads(c.expect_messages(1)) == [b"0"]
        c.expect_quiet()
        assert end(c, opened, "COMMIT") == ""
        assert payloads(c.expect_messages(1)) == [b"1"]
        assert tuple(begin(c).values()) > tuple(opened.values())
