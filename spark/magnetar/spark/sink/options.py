"""Options of writes to topics: `df.write.format("magnetar").option(...)` and those of streams."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.client.options import ClientOptions
from magnetar.common.errors import InvalidName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import CompressionType
from magnetar.spark.client_options import client_options
from magnetar.spark.sink.errors import BadOption
from magnetar.spark.sink.routing import HASHES

_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname"})
"""Options that Spark itself passes on."""

_OF_SOURCE: Final = frozenset({"offload.address"})
"""Means nothing here; one set of options may serve reading and writing."""

_YES: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Each field is the option of the same name with dots for underscores. Times are in seconds."""

    service_url: str = "pulsar://localhost:6650"
    topic: str = ""
    """Topic of rows that name no topic of their own."""

    query_id: str = ""
    """Names what publishes: under one id nothing is published twice. Streams have their query's unless it is
    given, other writes a new one each time."""

    batch_id: int | None = None
    """For writes: the number of a batch under `query_id`, such as foreachBatch gives it."""

    hashing: str = "java"
    """Hash that chooses the partition of a key: java or murmur3."""

    batching: str = "key"
    """Messages that may share an entry: those of one key (key), any (plain), none."""

    batch_messages_max: int = 1_000
    batch_bytes_max: int = 131_072
    value_format: str = "raw"
    """raw: `value` is the payload, and the topic gets no schema. avro, json: `value` is of any type, encoded
    by a schema that the topic must take."""

    value_schema: str = ""
    """Avro definition of `value`; not set: made of the column's type."""

    compression: str = "none"
    """none, zlib, lz4, zstd, snappy."""

    transactions: str = "auto"
    """on: each task publishes in a transaction, and those of a batch are committed together; off: sequence
    ids and the broker's deduplication; auto: on where the broker has transactions."""

    transaction_timeout: float = 600.0
    """Seconds after which the broker aborts what a task has published, unless its batch is committed."""

    commit_topic: str = ""
    """Topic in which a query notes the transactions of its batches; not set: spark-commits- and the query's
    id, in the namespace of `topic`."""

    deduplication: str = "required"
    """Without transactions: required: fail where the broker does not deduplicate; none: rows may be published
    twice."""

    busy_timeout: float = 120.0
    """Seconds for which a task waits until an earlier attempt releases the producer's name."""

    auth_token: str = ""
    """Token; by default MAGNETAR_TOKEN in the environment of the task."""

    tls_trust_certs_file: str = ""
    tls_allow_insecure: bool = False
    listener_name: str = ""

    def commits_of(self, query_id: str) -> str:
        """Return the full name of the topic in which a query notes its commits."""
        namespace = TopicName.parse(self.topic).namespace if self.topic else "public/default"
        return self.commit_topic or f"persistent://{namespace}/spark-commits-{query_id}"

    @property
    def compression_type(self) -> CompressionType.ValueType:
        return CompressionType.Value(self.compression.upper())

    def client_options(self) -> ClientOptions:
        """Return the client options; called where the task runs, so that the environment there counts."""
        return client_options(
            self.service_url,
            token=self.auth_token,
            trust_certs_file=self.tls_trust_certs_file,
            allow_insecure=self.tls_allow_insecure,
            listener_name=self.listener_name,
        )


_CHOICES: Final = {
    "hashing": tuple(HASHES),
    "batching": ("key", "plain", "none"),
    "value_format": ("raw", "avro", "json"),
    "transactions": ("auto", "on", "off"),
    "compression": ("none", "lz4", "zlib", "zstd", "snappy"),
    "deduplication": ("required", "none"),
}
_NAMES: Final = {name.replace("_", "."): name for name in SinkOptions.__dataclass_fields__}


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options. Raises BadOption, which lists all problems."""
    wrong: list[str] = []
    values: dict[str, object] = {}
    for option, text in given.items():
        name = _NAMES.get(option.lower())
        if name is None:
            if option.lower() not in _OF_SPARK | _OF_SOURCE:
                near = difflib.get_close_matches(option.lower(), _NAMES, 1)
                wrong.append(
                    f"{option} is not an option of writes" + (f", did you mean {near[0]}?" if near else "")
                )
            continue
        try:
            values[name] = _value(name, text)
        except ValueError as error:
            wrong.append(f"{option}={text!r}: {error}")
    lowered = {option.lower(): text for option, text in given.items()}
    if "topic" not in values and lowered.get("path"):
        values["topic"] = lowered["path"]
    if values.get("topic"):
        try:
            values["topic"] = TopicName.parse(str(values["topic"])).full
        except InvalidName as error:
            wrong.append(f"topic={values['topic']!r}: {error}")
    if values.get("commit_topic"):
        try:
            values["commit_topic"] = TopicName.parse(str(values["commit_topic"])).full
        except InvalidName as error:
            wrong.append(f"commit.topic={values['commit_topic']!r}: {error}")
    if values.get("batch_id") is not None and not values.get("query_id"):
        wrong.append("batch.id needs query.id: the two together say what was published before")
    if values.get("value_schema") and values.get("value_format", "raw") == "raw":
        wrong.append("value.schema needs value.format avro or json")
    if wrong:
        raise BadOption("; ".join(wrong))
    return SinkOptions(**values)  # type: ignore[arg-type]


def _value(name: str, text: str) -> object:
    """Parse a value. Raises ValueError, which lists the allowed values."""
    if name in _CHOICES:
        if text.lower() not in _CHOICES[name]:
            raise ValueError("one of " + ", ".join(_CHOICES[name]))
        return text.lower()
    if name in ("batch_messages_max", "batch_bytes_max", "batch_id"):
        least = 0 if name == "batch_id" else 1
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"a whole number from {least} on")
        return int(text)
    if name in ("busy_timeout", "transaction_timeout"):
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= 86_400:
            raise ValueError("seconds, from 0 to 86400")
        return seconds
    if name == "tls_allow_insecure":
        if text.lower() not in _YES:
            raise ValueError("true or false")
        return _YES[text.lower()]
    return text
