"""Every group and verb of pulsar-admin 4.0 has a place in `magnetar admin`, or a reason why it has none."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.admin.admin_group import NOT_HERE
from magnetar.cli.admin.command import admin
from magnetar.cli.main import main

THREE = ("get", "set", "remove")


def policies(names: str) -> set[str]:
    return {f"{verb}-{name}" for name in names.split() for verb in THREE}


POLICIES = policies(
    "retention message-ttl deduplication deduplication-snapshot-interval delayed-delivery persistence "
    "offload-policies dispatch-rate subscription-dispatch-rate replicator-dispatch-rate compaction-threshold "
    "max-unacked-messages-per-consumer max-unacked-messages-per-subscription publish-rate max-message-size "
    "max-consumers-per-subscription inactive-topic-policies subscribe-rate subscription-types-enabled"
) | {"set-backlog-quota", "remove-backlog-quota"}

VERBS = {
    "clusters": "list get create update delete get-peer-clusters update-peer-clusters get-cluster-migration "
    "update-cluster-migration get-failure-domain create-failure-domain update-failure-domain "
    "delete-failure-domain list-failure-domains",
    "ns-isolation-policy": "set get list delete brokers broker",
    "brokers": "list leader-broker namespaces update-dynamic-config delete-dynamic-config "
    "list-dynamic-config get-all-dynamic-config get-internal-config get-runtime-config "
    "healthcheck backlog-quota-check version shutdown",
    "broker-stats": "monitoring-metrics mbeans topics allocator-stats load-report",
    "tenants": "list get create update delete",
    "properties": "list get create update delete",
    "resource-quotas": "get set reset-namespace-bundle-quota",
    "schemas": "get delete upload extract compatibility metadata",
    "bookies": "racks-placement list-bookies get-bookie-rack delete-bookie-rack set-bookie-rack",
    "namespaces": "list topics bundles destinations policies create delete permissions grant-permission "
    "revoke-permission subscription-permission grant-subscription-permission revoke-subscription-permission "
    "set-clusters get-clusters get-allowed-clusters set-allowed-clusters get-backlog-quotas "
    "set-anti-affinity-group get-anti-affinity-group get-anti-affinity-namespaces "
    "delete-anti-affinity-group set-bookie-affinity-group get-bookie-affinity-group "
    "delete-bookie-affinity-group unload split-bundle get-topic-positions clear-backlog unsubscribe "
    "set-encryption-required get-encryption-required set-subscription-auth-mode get-subscription-auth-mode "
    "get-offload-threshold set-offload-threshold get-offload-deletion-lag set-offload-deletion-lag "
    "clear-offload-deletion-lag get-schema-autoupdate-strategy set-schema-autoupdate-strategy "
    "get-schema-compatibility-strategy set-schema-compatibility-strategy get-is-allow-auto-update-schema "
    "set-is-allow-auto-update-schema get-schema-validation-enforce set-schema-validation-enforce "
    "set-property get-property remove-property set-properties get-properties clear-properties "
    "get-resource-group set-resource-group remove-resource-group update-migration-state",
    "topics": "list list-partitioned-topics permissions grant-permission revoke-permission lookup "
    "partitioned-lookup bundle-range delete truncate unload subscriptions unsubscribe create-subscription "
    "update-subscription-properties get-subscription-properties stats stats-internal info-internal "
    "partitioned-stats partitioned-stats-internal skip clear-backlog expire-messages "
    "expire-messages-all-subscriptions create-partitioned-topic create-missed-partitions create "
    "update-partitioned-topic get-partitioned-topic-metadata get-properties update-properties "
    "remove-properties delete-partitioned-topic peek-messages examine-messages get-message-by-id "
    "get-message-id reset-cursor terminate partitioned-terminate compact compaction-status offload "
    "offload-status last-message-id get-backlog-quotas enable-deduplication disable-deduplication "
    "get-deduplication-enabled set-replicated-subscription-status get-replicated-subscription-status "
    "get-backlog-size analyze-backlog get-replication-clusters set-replication-clusters "
    "remove-replication-clusters get-shadow-topics set-shadow-topics remove-shadow-topics "
    "get-shadow-source get-schema-validation-enforce set-schema-validation-enforce trim-topic",
    "topicPolicies": "delete get-backlog-quota",
    "transactions": "coordinator-internal-stats pending-ack-internal-stats buffer-snapshot-internal-stats "
    "coordinator-stats transaction-buffer-stats pending-ack-stats transaction-in-buffer-stats "
    "transaction-in-pending-ack-stats transaction-metadata slow-transactions "
    "scale-transactionCoordinators position-stats-in-pending-ack coordinators-list abort-transaction",
}
MORE = {
    "namespaces": (POLICIES - policies("max-message-size"))
    | policies(
        "auto-topic-creation auto-subscription-creation max-producers-per-topic max-consumers-per-topic "
        "max-subscriptions-per-topic subscription-expiration-time max-topics-per-namespace entry-filters "
        "dispatcher-pause-on-ack-state-persistent"
    ),
    "topics": POLICIES
    | policies(
        "max-producers maxProducers max-subscriptions max-consumers max-unacked-messages-on-consumer "
        "max-unacked-messages-on-subscription"
    ),
    "topicPolicies": POLICIES
    | policies(
        "max-producers max-consumers max-subscriptions-per-topic schema-compatibility-strategy "
        "entry-filters-per-topic auto-subscription-creation dispatcher-pause-on-ack-state-persistent "
        "replication-clusters"
    ),
}


def group_of(name: str) -> click.Group:
    found = admin.get_command(click.Context(admin), name)
    assert isinstance(found, click.Group), name
    return found


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_of_pulsar_admin_is_there(name: str) -> None:
    group = group_of(name)
    context = click.Context(group)
    wanted = set(VERBS[name].split()) | MORE.get(name, set())
    assert {verb for verb in wanted if group.get_command(context, verb) is None} == set()


def test_other_names_are_not_listed() -> None:
    listed = CliRunner().invoke(main, ["admin", "topics", "--help"]).output
    assert "maxProducers" not in listed
    assert "set-retention" not in listed
    assert "persistent  " not in CliRunner().invoke(main, ["admin", "--help"]).output


@pytest.mark.parametrize("name", NOT_HERE)
def test_groups_that_are_not_here_say_why(name: str) -> None:
    result = CliRunner().invoke(main, ["admin", name, "list"])
    assert result.exit_code == 2
    assert NOT_HERE[name] in result.output


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("topicz list", "Did you mean"),
        ("topics stat x", "Did you mean 'stats'"),
        ("topics list x/y --include-system", "--include-system-topic"),
        ("topics delete a/b --regex", "persistent://tenant/namespace/expression"),
        ("topics delete x --regex --from-file", "either"),
        ("topics delete nowhere.txt --from-file", "No such file"),
    ],
)
def test_mistyped_verb_gets_a_suggestion(line: str, hint: str) -> None:
    result = CliRunner().invoke(main, ["admin", *line.split()])
    assert result.exit_code == 2
    assert hint in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_MAGNETAR_COMPLETE" in result.output


def test_commands_and_values_are_completed() -> None:
    environment = {"_MAGNETAR_COMPLETE": "bash_complete"}
    words = {"COMP_WORDS": "magnetar admin topics get-mess", "COMP_CWORD": "3"}
    result = CliRunner().invoke(main, [], prog_name="magnetar", env=environment | words)
    assert "plain,get-message-by-id" in result.output
    words = {"COMP_WORDS": "magnetar consume t -t ", "COMP_CWORD": "4"}
    result = CliRunner().invoke(main, [], prog_name="magnetar", env=environment | words)
    assert "plain,key_shared" in result.output


CLIENT_OPTIONS = {
    "produce": "-m --messages -f --files -n --num-produce -r --rate -db --disable-batching -s --separator "
    "-p --properties -k --key -dr --disable-replication",
    "consume": "-t --subscription-type -m --subscription-mode -p --subscription-position -r --rate "
    "-s --subscription-name -n --num-messages --hex --hide-content --regex -q --queue-size "
    "-st --schema-type -mp --print-metadata",
    "perf produce": "-r --rate -s --size -t --num-topic -n --num-producers -o --max-outstanding "
    "-m --num-messages -z --compression -b --batch-time-window -bm --batch-max-messages "
    "-bb --batch-max-bytes -db --disable-batching -time --test-duration -i --stats-interval-seconds "
    "-mk --message-key-generation-mode -u --service-url --auth-plugin --auth-params -c --max-connections "
    "-ioThreads --num-io-threads",
    "perf consume": "-n --num-consumers -ns --num-subscriptions -s --subscriber-name -ss --subscriptions "
    "-st --subscription-type -sp --subscription-position -r --rate -q --receiver-queue-size "
    "-t --num-topic -m --num-messages -time --test-duration",
}


@pytest.mark.parametrize("line", CLIENT_OPTIONS)
def test_common_options_of_pulsar_client_and_pulsar_perf_have_their_names(line: str) -> None:
    command: click.Command = main
    for name in line.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert set(CLIENT_OPTIONS[line].split()) - options == set()
    by_name = {option: each for each in command.params for option in each.opts}
    if line == "consume":
        assert (by_name["-r"].name, by_name["-m"].name) == ("rate", "mode")
