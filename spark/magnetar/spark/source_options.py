"""Options of `format("magnetar")` for reading: text, as Spark hands it over, to values that were checked.

Names are not case-sensitive. An unknown option is an error that names the nearest one: a bound that
is misspelled must not read everything.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, cast

from magnetar.client.encryption import CryptoFailure
from magnetar.client.options import ClientOptions
from magnetar.common.errors import InvalidName, MagnetarError
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.service_url import parse_service_url
from magnetar.spark.client_options import client_options
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.message_ids import MessageAt, parse_message_id

DEFAULT_SERVICE: Final = "127.0.0.1:6750"
TASK_BYTES: Final = 64 << 20
CHUNK_BYTES_MAX: Final = 64 << 20

ValueFormat = Literal["raw", "string", "json", "avro", "auto"]
OnValueError = Literal["null", "fail"]
ChunkMode = Literal["join", "keep"]

Bound: TypeAlias = Literal["earliest", "latest"] | MessageAt
"""A position in one topic."""

OPTIONS: Final[dict[str, str]] = {
    "offload.address": f"Offload service of any broker, host:port (default {DEFAULT_SERVICE}); "
    "grpcs://host:port for brokers with mutual TLS.",
    "offload.trust.certs": "Authority of services, a PEM file on the driver and on executors; not set: no "
    "TLS to bookies.",
    "offload.certificate": "The job's certificate for brokers and bookies, a PEM file there.",
    "offload.key": "The key of the certificate, a PEM file there.",
    "offload.server.name": "Name in services' certificates, where it is not the host of their address.",
    "service.url": "pulsar:// or pulsar+ssl:// URL; only for subscriptions and for all versions of a schema.",
    "auth.token": "Token for service.url; not set: MAGNETAR_TOKEN of the environment where it is used.",
    "tls.trust.certs.file": "Trusted CA certificates for pulsar+ssl:// (PEM file).",
    "tls.allow.insecure": "true: accept any certificate for any host name.",
    "crypto.key.dir": "Directory on executors with private keys, NAME.pem, for encrypted messages; not set: "
    "MAGNETAR_CRYPTO_KEY_DIR of the environment there; empty: none.",
    "crypto.failure": "consume (default: what cannot be decrypted stays a raw row), discard or fail.",
    "topic": "A topic, partitioned or not.",
    "topics": "Comma-separated topics.",
    "topics.pattern": "A regular expression over full names (persistent://tenant/namespace/name).",
    "starting": "earliest, latest, ledger:entry[:partition[:batch]], or JSON of these by topic. Inclusive.",
    "ending": "latest or a message id or JSON of these by topic. Exclusive.",
    "starting.time": "ms since 1970 or ISO 8601: messages that brokers took then or later.",
    "ending.time": "Likewise, exclusive.",
    "columns": "Comma-separated columns to read; not set: all but encryption_keys.",
    "value.format": "raw (default: no column value), string, json, avro, or auto: "
    "as the versions of the topic's schema say.",
    "value.schema": "Of value: a DDL text such as 'a INT, b STRING', or an Avro schema.",
    "value.errors": "null (default: a payload that cannot be decoded gives a null) or fail.",
    "chunks": "join (default: one row for a message in chunks, where its last chunk is) or keep.",
    "chunk.bytes.max": f"Largest message in chunks that is joined (default {CHUNK_BYTES_MAX}).",
    "ledgers": 'Only these ledgers, JSON by topic: {"my-topic": [12, 15]}.',
    "task.bytes": f"Bytes of entries a task reads, about (default {TASK_BYTES}).",
    "pushdown": "true: Spark's filters choose what is read; see docs/spark.md before use.",
    "maxRowsPerTrigger": "Streams: maximum rows in a micro-batch, exceeded by at most one entry.",
    "maxBytesPerTrigger": "Streams: bytes of entries in a micro-batch, about.",
    "failOnDataLoss": "false: go on when messages are gone before they were read (default true).",
    "subscription": "Streams: a durable subscription that is acknowledged behind the checkpoint.",
}
"""Every option and what it means."""

_KNOWN: Final = {name.lower(): name for name in OPTIONS}
_IGNORED: Final = frozenset({"path", "queryname", "checkpointlocation"})


class BadOption(MagnetarError):
    """An option is not known, or its value is wrong; the message says which and what is possible."""


_LOCAL_SERVICE: Final = ServiceAddress(DEFAULT_SERVICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of reads. Times are ms since 1970 UTC, sizes bytes; 0 means no limit."""

    service: ServiceAddress = _LOCAL_SERVICE
    service_url: str = ""
    auth_token: str = ""
    tls_trust_certs_file: str = ""
    tls_allow_insecure: bool = False
    crypto_key_dir: str | None = None
    """None: as the environment of executors says. Empty: no private keys."""
    crypto_failure: CryptoFailure = "consume"
    topics: tuple[str, ...] = ()
    """Full names."""
    pattern: str = ""
    starting: Bound | None = None
    starting_by_topic: Mapping[str, Bound] = field(default_factory=dict)
    ending: Bound | None = None
    ending_by_topic: Mapping[str, Bound] = field(default_factory=dict)
    starting_time_ms: int | None = None
    ending_time_ms: int | None = None
    columns: tuple[str, ...] = ()
    value_format: ValueFormat = "raw"
    value_schema: str = ""
    value_errors: OnValueError = "null"
    chunks: ChunkMode = "join"
    chunk_bytes_max: int = CHUNK_BYTES_MAX
    ledgers: Mapping[str, frozenset[int]] | None = None
    """Ledger ids by topic; a topic that is not named has none. None: all ledgers of all topics."""
    task_bytes: int = TASK_BYTES
    pushdown: bool = False
    max_rows_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    fail_on_data_loss: bool = True
    subscription: str = ""

    def client_options(self) -> ClientOptions:
        """Return the client options; called where they are used, so that the environment there counts."""
        return client_options(
            self.service_url,
            token=self.auth_token,
            trust_certs_file=self.tls_trust_certs_file,
            allow_insecure=self.tls_allow_insecure,
        )


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises BadOption."""
    options = _known(given)
    topics = _topics(options)
    starting, starting_by_topic = _bounds(options, "starting", topics)
    ending, ending_by_topic = _bounds(options, "ending", topics)
    parsed = SourceOptions(
        service=_service(options),
        service_url=options.get("service.url", ""),
        auth_token=options.get("auth.token", ""),
        tls_trust_certs_file=options.get("tls.trust.certs.file", ""),
        tls_allow_insecure=_flag(options, "tls.allow.insecure", False),
        crypto_key_dir=options["crypto.key.dir"].strip() if "crypto.key.dir" in options else None,
        crypto_failure=cast(CryptoFailure, _choice(options, "crypto.failure", "consume", "discard", "fail")),
        topics=topics,
        pattern=_pattern(options),
        starting=starting,
        starting_by_topic=starting_by_topic,
        ending=ending,
        ending_by_topic=ending_by_topic,
        starting_time_ms=_time(options, "starting.time"),
        ending_time_ms=_time(options, "ending.time"),
        columns=_list(options.get("columns", "")),
        value_format=cast(
            ValueFormat, _choice(options, "value.format", "raw", "string", "json", "avro", "auto")
        ),
        value_schema=options.get("value.schema", "").strip(),
        value_errors=cast(OnValueError, _choice(options, "value.errors", "null", "fail")),
        chunks=cast(ChunkMode, _choice(options, "chunks", "join", "keep")),
        chunk_bytes_max=_number(options, "chunk.bytes.max", CHUNK_BYTES_MAX),
        ledgers=_ledgers(options),
        task_bytes=_number(options, "task.bytes", TASK_BYTES),
        pushdown=_flag(options, "pushdown", False),
        max_rows_per_trigger=_number(options, "maxRowsPerTrigger", 0),
        max_bytes_per_trigger=_number(options, "maxBytesPerTrigger", 0),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        subscription=options.get("subscription", ""),
    )
    _check(parsed)
    return parsed


def _check(options: SourceOptions) -> None:
    if not options.topics and not options.pattern:
        raise BadOption('no topic to read: set the option "topic", "topics" or "topics.pattern"')
    if options.topics and options.pattern:
        raise BadOption('set either "topic"/"topics" or "topics.pattern", not both')
    if options.starting is not None and options.starting_time_ms is not None:
        raise BadOption('set either "starting" or "starting.time", not both')
    if options.ending is not None and options.ending_time_ms is not None:
        raise BadOption('set either "ending" or "ending.time", not both')
    if options.ending == "earliest":
        raise BadOption('"ending" cannot be earliest: it would read nothing')
    if options.subscription and not options.service_url:
        raise BadOption('"subscription" needs "service.url", the pulsar:// URL at which it is acknowledged')


def _known(given: Mapping[str, str]) -> dict[str, str]:
    options = {}
    for name, value in given.items():
        known = _KNOWN.get(name.lower())
        if known is not None:
            options[known] = value
        elif name.lower() not in _IGNORED:
            near = difflib.get_close_matches(name.lower(), _KNOWN, n=1)
            hint = f'did you mean "{_KNOWN[near[0]]}"?' if near else "options are: " + ", ".join(OPTIONS)
            raise BadOption(f'there is no option "{name}" for reading; {hint}')
    return options


def _service(options: Mapping[str, str]) -> ServiceAddress:
    address = options.get("offload.address", DEFAULT_SERVICE).strip()
    try:
        url = parse_service_url(address)
    except ValueError:
        raise BadOption(
            f'"offload.address" is {address!r}; it is host:port of a broker\'s magnetarControlPort, or '
            "grpcs://host:port"
        ) from None
    trust_certs = options.get("offload.trust.certs", "")
    if url.tls and not trust_certs:
        raise BadOption(
            f'"offload.address" is {address!r}: set "offload.trust.certs", "offload.certificate" and '
            '"offload.key" to PEM files of a job'
        )
    return ServiceAddress(
        str(url),
        trust_certs=trust_certs,
        certificate=options.get("offload.certificate", ""),
        key=options.get("offload.key", ""),
        server_name=options.get("offload.server.name", ""),
    )


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    names = _list(options.get("topics", ""))
    if "topic" in options:
        names = (options["topic"].strip(), *names)
    full: dict[str, None] = {}
    for name in names:
        full[_full_name(name, "topic")] = None
    return tuple(full)


def _full_name(name: str, option: str) -> str:
    try:
        topic = TopicName.parse(name)
    except InvalidName as error:
        raise BadOption(f'"{option}": {error}') from None
    if not topic.persistent:
        raise BadOption(f'"{option}": {name} is not persistent; its messages are not stored')
    return topic.full


def _pattern(options: Mapping[str, str]) -> str:
    pattern = options.get("topics.pattern", "")
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadOption(f'"topics.pattern" is not a valid regular expression: {error}') from None
    return pattern


def _bounds(
    options: Mapping[str, str], name: str, topics: tuple[str, ...]
) -> tuple[Bound | None, dict[str, Bound]]:
    text = options.get(name, "").strip()
    if not text:
        return None, {}
    if not text.startswith("{"):
        bound = _bound(name, text)
        if isinstance(bound, MessageAt) and len(topics) != 1:
            raise BadOption(
                f'"{name}" is one message id for several topics; give JSON: {{"topic": "{text}"}}'
            )
        return bound, {}
    try:
        by_topic = dict(json.loads(text))
    except (ValueError, TypeError):
        raise BadOption(f'"{name}" is not JSON such as {{"my-topic": "12:34"}}') from None
    return None, {_full_name(topic, name): _bound(name, str(value)) for topic, value in by_topic.items()}


def _bound(name: str, text: str) -> Bound:
    lowered = text.lower()
    if lowered == "earliest" or lowered == "latest":
        return cast(Bound, lowered)
    try:
        return parse_message_id(text)
    except ValueError as error:
        raise BadOption(f'"{name}" is {text!r}: {error}, nor earliest or latest') from None


def _ledgers(options: Mapping[str, str]) -> dict[str, frozenset[int]] | None:
    text = options.get("ledgers", "").strip()
    if not text:
        return None
    try:
        return {
            _full_name(topic, "ledgers"): frozenset(map(int, ids)) for topic, ids in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise BadOption('"ledgers" is not JSON such as {"my-topic": [12, 15]}') from None


def _time(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name, "").strip()
    if not text:
        return None
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f'"{name}" is {text!r}; it is ms since 1970 UTC or a time such as 2026-01-31T12:00:00Z'
        ) from None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return round(parsed.timestamp() * 1000)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    """The first is the default."""
    value = options.get(name, choices[0]).strip().lower()
    if value not in choices:
        raise BadOption(f'"{name}" is {value!r}; it is one of {", ".join(choices)}')
    return value


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise BadOption(f'"{name}" is {text!r}; it is a whole number above 0')
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, "").strip().lower()
    if text not in ("", "true", "false"):
        raise BadOption(f'"{name}" is {text!r}; it is true or false')
    return default if not text else text == "true"
