"""The options of `set-...` for each policy, with pulsar-admin's names, and the JSON body they produce."""

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
    """The options of a policy, and the function that turns them into the request body."""

    options: tuple[click.Option, ...]
    body: Callable[[Mapping[str, Any]], Any]


def _on_off(on: str, off: str) -> tuple[click.Option, ...]:
    return (
        click.Option([on, on[1:3], "on"], is_flag=True, help="Enable it."),
        click.Option([off, off[1:3], "off"], is_flag=True, help="Disable it."),
    )


def _is_on(given: Mapping[str, Any]) -> bool:
    if given["on"] == given["off"]:
        raise click.UsageError("give exactly one of the enable and disable options")
    return bool(given["on"])


def _number(names: list[str], help_text: str, **more: Any) -> click.Option:
    return click.Option(names, help=help_text, **{"type": int, **more})


_RATE: Final = Choice(
    (
        _number(["--msg-dispatch-rate", "-md", "messages"], "Messages per period; -1: no limit", default=-1),
        _number(["--byte-dispatch-rate", "-bd", "size"], "Bytes per period.", type=SIZE, default=-1),
        _number(["--dispatch-rate-period", "-dt", "period"], "Length of the period, in seconds.", default=1),
        click.Option(
            ["--relative-to-publish-rate", "-rp", "relative"],
            is_flag=True,
            help="Limit relative to the publish rate.",
        ),
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
            _number(
                ["--time", "-t"],
                "Duration such as 100m, 3h or 2d, or seconds; -1: no limit.",
                type=SECONDS,
                required=True,
            ),
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
                help="Action when the quota is exceeded.",
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
            _number(
                ["--msg-publish-rate", "-m", "messages"], "Messages per second; -1: no limit.", default=-1
            ),
            _number(["--byte-publish-rate", "-b", "size"], "Bytes a second.", type=SIZE, default=-1),
        ),
        lambda given: {
            "publishThrottlingRateInMsg": given["messages"],
            "publishThrottlingRateInByte": given["size"],
        },
    ),
    "subscribe_rate": Choice(
        (
            _number(["--subscribe-rate", "-sr", "rate"], "Subscribe requests per period.", default=-1),
            _number(
                ["--subscribe-rate-period", "-st", "period"], "Length of the period, in seconds.", default=30
            ),
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
                help="Type of topics that are created automatically.",
            ),
            _number(
                ["--num-partitions", "-n", "partitions"], "Type of topics that are created automatically."
            ),
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
                help="Condition for a topic to be inactive.",
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
            _number(["--time", "-t"], "Tick time of delayed delivery, in milliseconds.", default=1_000),
            _number(
                ["--maxDelay", "-md", "max_delay"], "Maximum delay, in milliseconds; 0: no limit.", default=0
            ),
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
                ["--types", "-t"],
                multiple=True,
                required=True,
                help="Comma-separated subscription types: Exclusive, Shared, ...",
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
                help="Compatibility required of a new schema.",
            ),
        ),
        lambda given: given["strategy"],
    ),
    "schema_auto_update_compatibility": Choice(
        (
            click.Option(
                ["--compatibility", "-c"],
                type=click.Choice(AUTO_UPDATE_COMPATIBILITIES, case_sensitive=False),
                help="Compatibility required of a new schema.",
            ),
            click.Option(
                ["--disabled", "-d", "off"], is_flag=True, help="Producers cannot register new schemas."
            ),
        ),
        _auto_update,
    ),
    "subscription_auth_mode": Choice(
        (
            click.Option(
                ["--subscription-auth-mode", "-m", "mode"],
                type=click.Choice(["None", "Prefix"], case_sensitive=False),
                required=True,
                help="Prefix: subscription names must begin with the role.",
            ),
        ),
        lambda given: given["mode"],
    ),
    "replicator_dispatch_rate": _RATE,
    "persistence": Choice(
        (
            _number(
                ["--bookkeeper-ensemble", "-e", "ensemble"], "Ensemble size: bookies per ledger.", default=2
            ),
            _number(
                ["--bookkeeper-write-quorum", "-w", "write"], "Write quorum: copies of an entry.", default=2
            ),
            _number(
                ["--bookkeeper-ack-quorum", "-a", "ack"],
                "Ack quorum: confirmed copies to wait for.",
                default=2,
            ),
            _number(
                ["--ml-mark-delete-max-rate", "-r", "rate"],
                "Maximum mark-delete updates per second.",
                type=float,
                default=0,
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
"""Options by policy field; numbers are in NUMBERS, offload policies in a separate module."""

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
"""Policies that are a single number, by verb: name and type of the option."""


def number_choice(verb: str) -> Choice:
    """Return the option of a policy that is a single number."""
    names, kind = NUMBERS[verb]
    option = click.Option([*names, "value"], type=kind, required=True, help="New value; 0: no limit.")
    return Choice((option,), lambda given: given["value"])
