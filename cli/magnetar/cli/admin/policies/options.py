"""The options of `set-...` for each policy, called as pulsar-admin calls them, and the JSON they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click
from magnetar.cli.option_values import SECONDS, SIZE
from magnetar.common.admin_types.policies import AUTO_UPDATE_COMPATIBILITIES, SCHEMA_COMPATIBILITIES

SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")


@dataclass(frozen=True, slots=True)
class Choice:
    """Options, and the body of the request that follows from them."""

    options: tuple[click.Option, ...]
    body: Callable[[Mapping[str, Any]], Any]


def _on_off(on: str, off: str) -> tuple[click.Option, ...]:
    return (
        click.Option([on, on[1:3], "on"], is_flag=True, help="Switch it on."),
        click.Option([off, off[1:3], "off"], is_flag=True, help="Switch it off."),
    )


def _is_on(given: Mapping[str, Any]) -> bool:
    if given["on"] == given["off"]:
        raise click.UsageError("either switch it on or off")
    return bool(given["on"])


def _number(names: list[str], help_text: str, **more: Any) -> click.Option:
    return click.Option(names, help=help_text, **{"type": int, **more})


_RATE: Final = Choice(
    (
        _number(["--msg-dispatch-rate", "-md", "messages"], "Messages in a period; -1: no limit", default=-1),
        _number(["--byte-dispatch-rate", "-bd", "size"], "Bytes in a period.", type=SIZE, default=-1),
        _number(["--dispatch-rate-period", "-dt", "period"], "Seconds of a period.", default=1),
        click.Option(["--relative-to-publish-rate", "-rp", "relative"], is_flag=True, help="On top of it."),
    ),
    lambda given: {
        "dispatchThrottlingRateInMsg": given["messages"],
        "dispatchThrottlingRateInByte": given["size"],
        "ratePeriodInSecond": given["period"],
        "relativeToPublishRate": given["relative"],
    },
)


def _retention(given: Mapping[str, Any]) -> dict[str, int]:
    seconds, size = given["time"], given["size"]
    return {
        "retentionTimeInMinutes": seconds if seconds < 0 else seconds // 60,
        "retentionSizeInMB": size if size < 0 else size // (1024 * 1024),
    }


def _quota(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["limit"] is None and given["limit_time"] is None:
        raise click.UsageError("give --limit, --limitTime or both")
    return {
        "limitSize": -1 if given["limit"] is None else given["limit"],
        "limitTime": -1 if given["limit_time"] is None else given["limit_time"],
        "policy": given["policy"],
    }


def _auto_topic(given: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"allowAutoTopicCreation": _is_on(given)}
    if body["allowAutoTopicCreation"]:
        body["topicType"] = given["topic_type"]
        if given["partitions"] is not None:
            body["defaultNumPartitions"] = given["partitions"]
    return body


def _auto_update(given: Mapping[str, Any]) -> str:
    if given["off"] == (given["compatibility"] is not None):
        raise click.UsageError("give either --compatibility or --disabled")
    return "AutoUpdateDisabled" if given["off"] else str(given["compatibility"])


def _types(given: Mapping[str, Any]) -> list[str]:
    found = [name.strip() for text in given["types"] for name in text.split(",")]
    for name in found:
        if name not in SUBSCRIPTION_TYPES:
            raise click.UsageError(f"{name!r} is not one of {', '.join(SUBSCRIPTION_TYPES)}")
    return found


OPTIONS: Final[dict[str, Choice]] = {
    "retention": Choice(
        (
            _number(["--time", "-t"], "As 100m, 3h, 2d; seconds; -1: for ever.", type=SECONDS, required=True),
            _number(["--size", "-s"], "As 10M, 16G; -1: without bound.", type=SIZE, required=True),
        ),
        _retention,
    ),
    "quota": Choice(
        (
            _number(["--limit", "-l"], "Bytes, as 10M, 16G.", type=SIZE),
            _number(["--limitTime", "-lt", "limit_time"], "Seconds, as 10m, 3h.", type=SECONDS),
            click.Option(
                ["--policy", "-p"],
                type=click.Choice(
                    ["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
                ),
                required=True,
                help="What happens beyond it.",
            ),
        ),
        _quota,
    ),
    "deduplication": Choice(_on_off("--enable", "--disable"), _is_on),
    "encryption_required": Choice(_on_off("--enable", "--disable"), _is_on),
    "auto_subscription_creation": Choice(
        _on_off("--enable", "--disable"), lambda given: {"allowAutoSubscriptionCreation": _is_on(given)}
    ),
    "dispatch_rate": _RATE,
    "subscription_dispatch_rate": _RATE,
    "publish_rate": Choice(
        (
            _number(["--msg-publish-rate", "-m", "messages"], "Messages a second; -1: no limit.", default=-1),
            _number(["--byte-publish-rate", "-b", "size"], "Bytes a second.", type=SIZE, default=-1),
        ),
        lambda given: {
            "publishThrottlingRateInMsg": given["messages"],
            "publishThrottlingRateInByte": given["size"],
        },
    ),
    "subscribe_rate": Choice(
        (
            _number(["--subscribe-rate", "-sr", "rate"], "Subscribes in a period.", default=-1),
            _number(["--subscribe-rate-period", "-st", "period"], "Seconds of a period.", default=30),
        ),
        lambda given: {
            "subscribeThrottlingRatePerConsumer": given["rate"],
            "ratePeriodInSecond": given["period"],
        },
    ),
    "auto_topic_creation": Choice(
        (
            *_on_off("--enable", "--disable"),
            click.Option(
                ["--type", "-t", "topic_type"],
                type=click.Choice(["partitioned", "non-partitioned"]),
                default="non-partitioned",
                show_default=True,
                help="Of topics that are made.",
            ),
            _number(["--num-partitions", "-n", "partitions"], "Of topics that are made."),
        ),
        _auto_topic,
    ),
    "inactive_topics": Choice(
        (
            *_on_off("--enable-delete-while-inactive", "--disable-delete-while-inactive"),
            _number(["--max-inactive-duration", "-t", "seconds"], "As 90s, 2h.", type=SECONDS, required=True),
            click.Option(
                ["--delete-mode", "-m", "mode"],
                type=click.Choice(["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]),
                required=True,
                help="When a topic is inactive.",
            ),
        ),
        lambda given: {
            "inactiveTopicDeleteMode": given["mode"],
            "maxInactiveDurationSeconds": given["seconds"],
            "deleteWhileInactive": _is_on(given),
        },
    ),
    "delayed_delivery": Choice(
        (
            *_on_off("--enable", "--disable"),
            _number(["--time", "-t"], "Milliseconds of a tick.", default=1_000),
            _number(["--maxDelay", "-md", "max_delay"], "Longest delay, ms; 0: no limit.", default=0),
        ),
        lambda given: {
            "active": _is_on(given),
            "tickTime": given["time"],
            "maxDeliveryDelayInMillis": given["max_delay"],
        },
    ),
    "subscription_types": Choice(
        (
            click.Option(
                ["--types", "-t"], multiple=True, required=True, help="Exclusive, Shared, ...; with commas."
            ),
        ),
        _types,
    ),
    "dispatcher_pause_on_ack_state": Choice((), lambda given: True),
    "schema_auto_update": Choice(_on_off("--enable", "--disable"), _is_on),
    "schema_validation_enforced": Choice(_on_off("--enable", "--disable"), _is_on),
    "schema_compatibility": Choice(
        (
            click.Option(
                ["--compatibility", "-c", "--strategy", "-s", "strategy"],
                type=click.Choice(SCHEMA_COMPATIBILITIES, case_sensitive=False),
                required=True,
                help="What a new schema has to be compatible with.",
            ),
        ),
        lambda given: given["strategy"],
    ),
    "schema_auto_update_compatibility": Choice(
        (
            click.Option(
                ["--compatibility", "-c"],
                type=click.Choice(AUTO_UPDATE_COMPATIBILITIES, case_sensitive=False),
                help="What a new schema has to be compatible with.",
            ),
            click.Option(["--disabled", "-d", "off"], is_flag=True, help="Producers bring no new schema."),
        ),
        _auto_update,
    ),
    "subscription_auth_mode": Choice(
        (
            click.Option(
                ["--subscription-auth-mode", "-m", "mode"],
                type=click.Choice(["None", "Prefix"], case_sensitive=False),
                required=True,
                help="Prefix: names of subscriptions begin with the role.",
            ),
        ),
        lambda given: given["mode"],
    ),
    "replicator_dispatch_rate": _RATE,
    "persistence": Choice(
        (
            _number(["--bookkeeper-ensemble", "-e", "ensemble"], "Bookies of a ledger.", default=2),
            _number(["--bookkeeper-write-quorum", "-w", "write"], "Copies of an entry.", default=2),
            _number(["--bookkeeper-ack-quorum", "-a", "ack"], "Copies to wait for.", default=2),
            _number(
                ["--ml-mark-delete-max-rate", "-r", "rate"], "Mark-deletes a second.", type=float, default=0
            ),
        ),
        lambda given: {
            "bookkeeperEnsemble": given["ensemble"],
            "bookkeeperWriteQuorum": given["write"],
            "bookkeeperAckQuorum": given["ack"],
            "managedLedgerMaxMarkDeleteRate": given["rate"],
        },
    ),
}
"""By the field that keeps the policy; numbers are in NUMBERS, offloading in a module of its own."""

NUMBERS: Final = {
    "message-ttl": (["--messageTTL", "-ttl", "--ttl", "-t"], SECONDS),
    "subscription-expiration-time": (["--time", "-t"], int),
    "deduplication-snapshot-interval": (["--interval", "-i"], int),
    "max-producers-per-topic": (["--max-producers-per-topic", "--max-producers", "-p"], int),
    "max-consumers-per-topic": (["--max-consumers-per-topic", "--max-consumers", "-c"], int),
    "max-consumers-per-subscription": (["--max-consumers-per-subscription", "-c"], int),
    "max-subscriptions-per-topic": (["--max-subscriptions-per-topic", "-m", "-s"], int),
    "max-message-size": (["--max-message-size", "-m"], SIZE),
    "max-unacked-messages-per-consumer": (
        ["--max-unacked-messages-per-consumer", "--max-unacked-messages-per-topic", "--maxNum", "-c", "-m"],
        int,
    ),
    "max-unacked-messages-per-subscription": (
        ["--max-unacked-messages-per-subscription", "--maxNum", "-c", "-m"],
        int,
    ),
    "compaction-threshold": (["--threshold", "-t"], SIZE),
    "max-topics-per-namespace": (["--max-topics-per-namespace", "-t"], int),
}
"""Policies that are one number, by verb: how the option is called, and its type."""


def number_choice(verb: str) -> Choice:
    """The option of a policy that is one number."""
    names, kind = NUMBERS[verb]
    option = click.Option([*names, "value"], type=kind, required=True, help="0: no limit.")
    return Choice((option,), lambda given: given["value"])
