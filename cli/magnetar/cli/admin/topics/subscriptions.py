"""Commands of `magnetar admin topics` for subscriptions and single messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.http_client import Answer, ask, show, subscription_path, topic_path
from magnetar.cli.message_output import head_text, show_content, show_text
from magnetar.cli.option_values import SECONDS, pairs

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_LATEST: Final = 2**63 - 1
_COMMITTED: Final = "READ_COMMITTED"
_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_SUBSCRIPTION = click.option("--subscription", "-s", required=True, help="Subscription name.")


class MessageId(click.ParamType[dict[str, int]]):
    """A message id: latest, earliest or ledger:entry."""

    name = "message id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        if isinstance(value, dict):
            return value
        if value in ("latest", "earliest"):
            number = _LATEST if value == "latest" else -1
            return {"ledgerId": number, "entryId": number}
        found = re.fullmatch(r"([0-9]+):(-?[0-9]+)", str(value))
        if found is None:
            self.fail(
                f"invalid message id {value!r}; write it as ledger:entry, latest or earliest", param, ctx
            )
        return {"ledgerId": int(found[1]), "entryId": int(found[2])}


MESSAGE_ID: Final = MessageId()


@click.command(name="create-subscription")
@_TOPIC
@_SUBSCRIPTION
@click.option(
    "--messageId",
    "-m",
    "message_id",
    type=MESSAGE_ID,
    default="latest",
    show_default=True,
    help="Start position: ledger:entry, earliest or latest.",
)
@click.option("--property", "-p", "given", multiple=True, help="Property as key=value; repeat for several.")
@click.pass_obj
def create_subscription(
    target: Target, topic: str, subscription: str, message_id: Mapping[str, int], given: tuple[str, ...]
) -> None:
    """Make a subscription."""
    body = {**message_id, "properties": pairs(given, "--property")}
    ask(target, "PUT", subscription_path(topic, subscription), body)


@click.command()
@_TOPIC
@_SUBSCRIPTION
@click.option("--force", "-f", is_flag=True, help="Delete even if consumers are connected.")
@click.pass_obj
def unsubscribe(target: Target, topic: str, subscription: str, force: bool) -> None:
    """Delete a subscription with its backlog."""
    ask(target, "DELETE", subscription_path(topic, subscription), query={"force": force or None})


@click.command(name="get-subscription-properties")
@_TOPIC
@_SUBSCRIPTION
@click.pass_obj
def get_subscription_properties(target: Target, topic: str, subscription: str) -> None:
    """Show the properties of a subscription."""
    value = ask(target, "GET", f"{subscription_path(topic, subscription)}/properties").value
    show(target, f"Properties of {subscription}", value)


@click.command(name="update-subscription-properties")
@_TOPIC
@_SUBSCRIPTION
@click.option("--property", "-p", "given", multiple=True, help="Property as key=value; repeat for several.")
@click.option("--clear", "-c", is_flag=True, help="Remove all properties.")
@click.pass_obj
def update_subscription_properties(
    target: Target, topic: str, subscription: str, given: tuple[str, ...], clear: bool
) -> None:
    """Replace the properties of a subscription."""
    if clear == bool(given):
        raise click.UsageError("give either --property or --clear")
    ask(target, "PUT", f"{subscription_path(topic, subscription)}/properties", pairs(given, "--property"))


@click.command()
@_TOPIC
@_SUBSCRIPTION
@click.option("--count", "-n", type=int, required=True, help="Number of entries.")
@click.pass_obj
def skip(target: Target, topic: str, subscription: str, count: int) -> None:
    """Skip the next entries of a backlog by acknowledging them."""
    ask(target, "POST", f"{subscription_path(topic, subscription)}/skip/{count}")


def _skip_all(target: Target, topic: str, subscription: str) -> None:
    """Acknowledge the whole backlog of a subscription."""
    ask(target, "POST", f"{subscription_path(topic, subscription)}/skip_all")


skip_all = click.command(name="skip-all")(_TOPIC(_SUBSCRIPTION(click.pass_obj(_skip_all))))
clear_backlog = click.command(name="clear-backlog")(_TOPIC(_SUBSCRIPTION(click.pass_obj(_skip_all))))


@click.command(name="reset-cursor")
@_TOPIC
@_SUBSCRIPTION
@click.option("--time", "-t", "ago", type=SECONDS, help="Duration to go back, such as 10m or 3h.")
@click.option(
    "--messageId", "-m", "message_id", type=MESSAGE_ID, help="Message id: ledger:entry, earliest or latest."
)
@click.option("--exclude-reset-position", "-e", "excluded", is_flag=True, help="Start after that message.")
@click.pass_obj
def reset_cursor(
    target: Target,
    topic: str,
    subscription: str,
    ago: int | None,
    message_id: Mapping[str, int] | None,
    excluded: bool,
) -> None:
    """Move a subscription to a time or a message."""
    path = f"{subscription_path(topic, subscription)}/resetcursor"
    if (ago is None) == (message_id is None):
        raise click.UsageError("give either --time or --messageId")
    if message_id is not None:
        ask(target, "POST", path, {**message_id, "excluded": excluded})
        return
    import time

    assert ago is not None
    ask(target, "POST", f"{path}/{int(time.time() * 1000) - ago * 1000}")


@click.command(name="expire-messages")
@_TOPIC
@_SUBSCRIPTION
@click.option(
    "--expireTime", "-t", "seconds", type=SECONDS, help="Minimum age of expired messages, such as 10m or 3h."
)
@click.option("--position", "-p", "message_id", type=MESSAGE_ID, help="Last message to expire.")
@click.option("--exclude-reset-position", "-e", "excluded", is_flag=True, help="Keep that message.")
@click.pass_obj
def expire_messages(
    target: Target,
    topic: str,
    subscription: str,
    seconds: int | None,
    message_id: Mapping[str, int] | None,
    excluded: bool,
) -> None:
    """Acknowledge messages older than a duration, or up to a message."""
    path = f"{subscription_path(topic, subscription)}/expireMessages"
    if (seconds is None) == (message_id is None):
        raise click.UsageError("give either --expireTime or --position")
    if message_id is not None:
        ask(target, "POST", path, {**message_id, "excluded": excluded})
    else:
        ask(target, "POST", f"{path}/{seconds}")


@click.command(name="expire-messages-all-subscriptions")
@_TOPIC
@click.option(
    "--expireTime",
    "-t",
    "seconds",
    type=SECONDS,
    required=True,
    help="Minimum age of expired messages, such as 10m or 3h.",
)
@click.pass_obj
def expire_everywhere(target: Target, topic: str, seconds: int) -> None:
    """Acknowledge messages older than a duration, on all subscriptions."""
    ask(target, "POST", f"{topic_path(topic)}/all_subscription/expireMessages/{seconds}")


@click.command(name="peek-messages")
@_TOPIC
@_SUBSCRIPTION
@click.option(
    "--count", "-n", type=click.IntRange(min=1), default=1, show_default=True, help="Number of entries."
)
@click.option(
    "--transaction-isolation-level",
    "-til",
    "isolation",
    type=click.Choice([_COMMITTED, "READ_UNCOMMITTED"]),
    default=_COMMITTED,
    show_default=True,
    help="Whether entries of open and aborted transactions are left out or shown.",
)
@click.pass_obj
def peek_messages(target: Target, topic: str, subscription: str, count: int, isolation: str) -> None:
    """Show the next entries of a backlog without acknowledging them."""
    shown = number = 0
    while shown < count:
        number += 1
        answer = ask(target, "GET", f"{subscription_path(topic, subscription)}/position/{number}")
        if isolation != _COMMITTED or _is_committed(answer):
            _show_message(answer)
            shown += 1


def _is_committed(answer: Answer) -> bool:
    """Whether consumers get an entry: neither in an aborted transaction, nor in or after an open one."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return "true" not in (headers.get(f"x-pulsar-txn-{what}") for what in ("aborted", "uncommitted"))


@click.command(name="examine-messages")
@_TOPIC
@click.option(
    "--initialPosition",
    "-i",
    "start",
    type=click.Choice(["latest", "earliest"]),
    default="latest",
    show_default=True,
    help="Reference point of the count.",
)
@click.option(
    "--messagePosition",
    "-m",
    "number",
    type=int,
    default=1,
    show_default=True,
    help="Position, starting with 1.",
)
@click.pass_obj
def examine_messages(target: Target, topic: str, start: str, number: int) -> None:
    """Show an entry by its position in the topic."""
    query = {"initialPosition": start, "messagePosition": number}
    _show_message(ask(target, "GET", f"{topic_path(topic)}/examinemessage", query=query))


@click.command(name="get-message-by-id")
@_TOPIC
@click.option("--ledgerId", "-l", "ledger", type=int, required=True, help="Ledger id.")
@click.option("--entryId", "-e", "entry", type=int, required=True, help="Entry id in the ledger.")
@click.pass_obj
def get_message_by_id(target: Target, topic: str, ledger: int, entry: int) -> None:
    """Show an entry by its ledger id and entry id."""
    _show_message(ask(target, "GET", f"{topic_path(topic)}/ledger/{ledger}/entry/{entry}"))


def _show_message(answer: Answer) -> None:
    """Print the headers of an entry, then its raw payload or its messages; no ciphertext."""
    said = {name: value for name, value in answer.headers.items() if name.lower().startswith("x-pulsar-")}
    for name, value in said.items():
        show_text(f"{name}: {value}")
    headers = {name.lower(): value for name, value in said.items()}
    if headers.get("x-pulsar-is-encrypted") == "true":
        show_text(f"encrypted: {len(answer.body)} bytes; consume it with the private key to read it")
        return
    count = headers.get("x-pulsar-num-batch-message", "")
    messages = _batch(answer.body, int(count)) if count.isdigit() else []
    if not messages:
        show_content(answer.body)
    for number, (key, properties, payload) in enumerate(messages, 1):
        print(f"----- message {number} of {count} -----")
        show_text(", ".join([*head_text(key, properties), "content:"]), end="")
        show_content(payload)


def _batch(body: bytes, count: int) -> list[tuple[str | None, dict[str, str], bytes]]:
    """Return key, properties and payload of each message of a batch; empty if it is damaged."""
    from magnetar.common.errors import DataCorruption
    from magnetar.common.wire.batch import batch_messages

    try:
        return [
            (
                metadata.partition_key if metadata.HasField("partition_key") else None,
                {each.key: each.value for each in metadata.properties},
                bytes(payload),
            )
            for metadata, payload in batch_messages(body, count)
        ]
    except DataCorruption:
        return []


COMMANDS: Final = (
    create_subscription,
    unsubscribe,
    get_subscription_properties,
    update_subscription_properties,
    skip,
    skip_all,
    clear_backlog,
    reset_cursor,
    expire_messages,
    expire_everywhere,
    peek_messages,
    examine_messages,
    get_message_by_id,
)
