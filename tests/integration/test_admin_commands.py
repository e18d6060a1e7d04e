"""`magnetar admin` as an operator or a script uses it, against a running broker."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.admin.namespaces.placement import COMMANDS
from magnetar.cli.main import main
from magnetar.testing.free_ports import free_ports

from tests.integration.clients import publish
from tests.integration.harness import ROOT, Endpoint, magnetar_command
from tests.integration.rest import Rest

Run = Callable[..., str]


def completed(endpoint_url: str, arguments: list[str]) -> Result:
    """The command in this process: a new one for each would take longer than all that they do."""
    return CliRunner().invoke(main, ["admin", "--admin-url", endpoint_url, *arguments])


@pytest.fixture
def run(endpoint: Endpoint) -> Run:
    """Runs a command line, which has to succeed; returns what it printed."""

    def act(line: str) -> str:
        done = completed(endpoint.http_url, shlex.split(line))
        assert done.exit_code == 0, (line, done.stderr)
        return done.stdout

    return act


@pytest.fixture
def asked(run: Run) -> Callable[[str], Any]:
    """Runs a command line; returns the JSON that it printed, None for nothing."""

    def act(line: str) -> Any:
        printed = run(line)
        return json.loads(printed) if printed else None

    return act


def test_tenants_and_namespaces(run: Run, asked: Callable[[str], Any]) -> None:
    run("tenants create cli --admin-roles a,b")
    assert asked("tenants get cli")["adminRoles"] == ["a", "b"]
    assert "cli" in asked("tenants list")
    run("tenants update cli -r c")
    assert asked("tenants get cli")["adminRoles"] == ["c"]
    run("namespaces create cli/ns --bundles 2")
    assert asked("namespaces list cli") == ["cli/ns"]
    assert asked("namespaces bundles cli/ns")["numBundles"] == 2
    run("namespaces set-properties cli/ns -p a=b,c=d")
    assert asked("namespaces get-properties cli/ns") == {"a": "b", "c": "d"}
    assert asked("namespaces policies cli/ns")["properties"] == {"a": "b", "c": "d"}
    run("namespaces clear-properties cli/ns")
    run("namespaces delete cli/ns")
    run("tenants delete cli")


NAMESPACE_VERBS = {
    "retention": ("-t 3h -s 10M", {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10}),
    "message-ttl": ("--messageTTL 2m", 120),
    "subscription-expiration-time": ("-t 5", 5),
    "deduplication": ("--enable", True),
    "deduplication-snapshot-interval": ("-i 9", 9),
    "dispatch-rate": (
        "-md 10 -bd 1K -dt 2",
        {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": 1024,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 2,
        },
    ),
    "subscription-dispatch-rate": (
        "-md 10 -rp",
        {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": -1,
            "relativeToPublishRate": True,
            "ratePeriodInSecond": 1,
        },
    ),
    "publish-rate": ("-m 5", {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
    "subscribe-rate": (
        "-sr 5 -st 10",
        {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 10},
    ),
    "max-producers-per-topic": ("-p 3", 3),
    "max-consumers-per-topic": ("-c 3", 3),
    "max-consumers-per-subscription": ("-c 3", 3),
    "max-subscriptions-per-topic": ("-m 3", 3),
    "max-unacked-messages-per-consumer": ("-c 3", 3),
    "max-unacked-messages-per-subscription": ("-c 3", 3),
    "max-topics-per-namespace": ("-t 3", 3),
    "auto-topic-creation": (
        "--enable --type partitioned -n 2",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2},
    ),
    "auto-subscription-creation": ("--disable", {"allowAutoSubscriptionCreation": False}),
    "inactive-topic-policies": (
        "-e -t 90s -m delete_when_subscriptions_caught_up",
        {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 90,
            "deleteWhileInactive": True,
        },
    ),
    "delayed-delivery": (
        "--enable -t 10",
        {"tickTime": 10, "active": True, "maxDeliveryDelayInMillis": 0},
    ),
    "encryption-required": ("-e", True),
    "subscription-types-enabled": ("-t Shared,Exclusive", ["Exclusive", "Shared"]),
    "persistence": (
        "-e 3 -w 3 -a 2 -r 0.5",
        {
            "bookkeeperEnsemble": 3,
            "bookkeeperWriteQuorum": 3,
            "bookkeeperAckQuorum": 2,
            "managedLedgerMaxMarkDeleteRate": 0.5,
        },
    ),
}


OFFLOAD = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadDriver": "aws-s3",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerOffloadThresholdInBytes": 10 << 30,
    "managedLedgerOffloadDeletionLagInMillis": 10_800_000,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadBucket": "b1",
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3Driver": True,
    "gcsDriver": False,
    "fileSystemDriver": False,
}

NAMESPACE_VERBS |= {
    "compaction-threshold": ("-t 10M", 10 << 20),
    "offload-policies": ("-d aws-s3 -b b1 -oat 10G -oae 3h -mbs 128M", OFFLOAD),
    "dispatcher-pause-on-ack-state-persistent": ("", True),
    "is-allow-auto-update-schema": ("--disable", False),
    "schema-compatibility-strategy": ("-c FORWARD", "FORWARD"),
    "schema-autoupdate-strategy": ("--disabled", "AutoUpdateDisabled"),
    "schema-validation-enforce": ("-e", True),
    "subscription-auth-mode": ("-m Prefix", "Prefix"),
    "replicator-dispatch-rate": (
        "-md 10 -bd 1K -dt 2",
        {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": 1024,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 2,
        },
    ),
}

ELSEWHERE = {"offload-threshold", "offload-deletion-lag", "resource-group", "entry-filters", "property"}
"""Tested with what else is done to namespaces."""


def test_every_policy_of_a_namespace_has_its_three_verbs(
    run: Run, asked: Callable[[str], Any], rest: Rest
) -> None:
    verbs = set(re.findall(r"^  set-([\w-]+)", run("namespaces --help"), re.MULTILINE))
    placement = {str(each.name).removeprefix("set-") for each in COMMANDS}  # tested with the cluster's
    assert verbs - placement - ELSEWHERE == {*NAMESPACE_VERBS, "backlog-quota", "properties"}
    namespace = rest.new_namespace()
    for verb, (options, value) in NAMESPACE_VERBS.items():
        unset = asked(f"namespaces get-{verb} {namespace}")
        run(f"namespaces set-{verb} {namespace} {options}")
        assert asked(f"namespaces get-{verb} {namespace}") == value, verb
        run(f"namespaces remove-{verb} {namespace}")
        assert asked(f"namespaces get-{verb} {namespace}") == unset, verb


def test_policies_of_a_topic(run: Run, asked: Callable[[str], Any], rest: Rest) -> None:
    topic = f"persistent://{rest.new_namespace()}/t"
    run(f"topics create {topic} -m k=v")
    verbs = set(re.findall(r"^  set-([\w-]+)", run("topicPolicies --help"), re.MULTILINE))
    assert verbs >= {"retention", "max-producers", "max-consumers", "max-message-size", "backlog-quota"}
    run(f"topicPolicies set-message-ttl {topic} -t 10s")
    assert asked(f"topicPolicies get-message-ttl {topic}") == 10
    run(f"topicPolicies set-max-message-size {topic} -m 1K")
    assert asked(f"topicPolicies get-max-message-size {topic}") == 1024
    assert asked(f"topicPolicies get-max-producers {topic}") is None
    assert asked(f"topicPolicies get-max-producers {topic} --applied") == 0
    run(f"topicPolicies set-backlog-quota {topic} -lt 1h -p consumer_backlog_eviction -t message_age")
    assert asked(f"topicPolicies get-backlog-quotas {topic}")["message_age"]["limitTime"] == 3600
    run(f"topicPolicies remove-backlog-quota {topic} -t message_age")
    run(f"topicPolicies delete-topic-policies {topic}")
    assert asked(f"topicPolicies get-message-ttl {topic}") is None


def test_topics_and_subscriptions(
    run: Run, asked: Callable[[str], Any], rest: Rest, client: pulsar.Client
) -> None:
    namespace = rest.new_namespace()
    topic, parts = f"persistent://{namespace}/t", f"persistent://{namespace}/p"
    run(f"topics create {topic}")
    assert asked(f"topics list {namespace}") == [topic]
    run(f"topics create-subscription {topic} -s 'a/b c' -p k=v")
    assert asked(f"topics subscriptions {topic}") == ["a/b c"]
    assert asked(f"topics get-subscription-properties {topic} -s 'a/b c'") == {"k": "v"}
    run(f"topics update-subscription-properties {topic} -s 'a/b c' -p x=y -p z=1")
    assert asked(f"topics get-subscription-properties {topic} -s 'a/b c'") == {"x": "y", "z": "1"}
    run(f"topics update-subscription-properties {topic} -s 'a/b c' --clear")
    assert asked(f"topics get-subscription-properties {topic} -s 'a/b c'") == {}
    last = publish(client, topic, [b"m%d" % number for number in range(5)])[-1]
    assert asked(f"topics last-message-id {topic}")["entryId"] == last.entry_id()
    run(f"topics skip {topic} -s 'a/b c' -n 2")
    assert "\nm2\n" in run(f"topics peek-messages {topic} -s 'a/b c'")
    run(f"topics skip-all {topic} -s 'a/b c'")

    def behind() -> int:
        return int(asked(f"topics stats {topic}")["subscriptions"]["a/b c"]["msgBacklog"])

    assert behind() == 0
    run(f"topics reset-cursor {topic} -s 'a/b c' -t 1h")
    assert behind() == 5
    run(f"topics reset-cursor {topic} -s 'a/b c' -m {last.ledger_id()}:{last.entry_id()}")
    assert behind() == 1
    run(f"topics expire-messages {topic} -s 'a/b c' -t 0s")
    assert behind() == 0
    run(f"topics unload {topic}")
    assert asked(f"topics stats-internal {topic}")["numberOfEntries"] == 5
    run(f"topics unsubscribe {topic} -s 'a/b c'")
    assert asked(f"topics terminate {topic}")["entryId"] == last.entry_id()
    run(f"topics delete {topic}")
    run(f"topics create-partitioned-topic {parts} -p 2")
    run(f"topics update-partitioned-topic {parts} -p 3")
    assert asked(f"topics get-partitioned-topic-metadata {parts}")["partitions"] == 3
    assert asked(f"topics list-partitioned-topics {namespace}") == [parts]
    assert asked(f"topics partitioned-stats {parts}")["partitions"] == {}
    run(f"topics delete-partitioned-topic {parts}")
    assert asked(f"topics list {namespace}") == []


def test_answers_are_tables_where_they_are_asked_for(run: Run) -> None:
    assert "│ public " in run("--output table tenants list")
    assert "public" in run("--output plain tenants list").splitlines()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("tenants get nope", 1, "Tenant does not exist (HTTP 404)"),
        ("namespaces create nope/ns", 1, "Tenant does not exist (HTTP 404)"),
        ("topics delete persistent://public/default/nope", 1, "not found (HTTP 404)"),
        ("topics delete public/nope", 2, "it has the form"),
        ("namespaces policies public", 2, "it has the form tenant/namespace"),
        ("namespaces set-retention public/default -t soon -s 1M", 2, "write it as"),
        ("namespaces set-deduplication public/default", 2, "exactly one of the enable and disable options"),
        ("topics reset-cursor t -s s", 2, "either --time or --messageId"),
        ("topics create t -m novalue", 2, "key=value"),
        ("namespaces frobnicate", 2, "No such command"),
    ],
)
def test_a_command_that_fails_says_why_and_ends_with_its_code(
    endpoint: Endpoint, line: str, code: int, said: str
) -> None:
    done = completed(endpoint.http_url, shlex.split(line))
    assert done.exit_code == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert not done.stdout


def test_without_a_broker_the_code_is_another_one() -> None:
    (port,) = free_ports(1)
    arguments = ["admin", "--admin-url", f"http://127.0.0.1:{port}", "tenants", "list"]
    done = subprocess.run(
        [*magnetar_command(), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert "no broker answers" in done.stderr
    assert "--admin-url" in done.stderr


def test_the_examples_of_the_documentation_do_what_they_say(endpoint: Endpoint) -> None:
    """Every line of a shell example is run, in order; `# gives` behind it is what it prints."""
    page = (ROOT / "docs/admin.md").read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in re.sub(r"\\\n\s*", "", block).splitlines()
        if line
    ]
    assert len(lines) >= 15
    for line in lines:
        command, _, gives = line.partition("# gives ")
        if command.startswith("magnetar admin "):
            done = completed(endpoint.http_url, shlex.split(command)[2:])
            code, printed, said = done.exit_code, done.stdout, done.stderr
        else:
            assert command.startswith("curl "), line
            command = command.replace("http://localhost:8080", endpoint.http_url)
            curl = subprocess.run(
                shlex.split(command), capture_output=True, text=True, timeout=60, check=False
            )
            code, printed, said = curl.returncode, curl.stdout, curl.stderr
        assert code == 0, (line, said)
        if gives:
            assert json.loads(printed) == json.loads(gives), line
