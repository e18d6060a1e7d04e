"""Catalogue of what Pulsar's clients do, one row a scenario: the contract of the client matrix.

One program per client library (`java/`, `go/`, `rust/`, `node/`, `python/`, and `asyncio_client/` for the
project's own) runs these scenarios against a service; `matrix.py` starts services and programs and collects
verdicts. The same scenarios run against Apache Pulsar (`make clients ANCHOR=1`): one that fails there is a
wrong scenario.

How a program is called, and what it prints:

- `program SERVICE_URL PREFIX KEYS [SCENARIO ...]`: the named scenarios, in the given order. Topics are
  `persistent://public/default/<PREFIX>-<scenario>`, with a suffix where a scenario needs several; KEYS is a
  directory with `public.pem` and `private.pem` (RSA), for `encryption`.
- `begin TAB scenario` before each, then exactly one verdict: `pass TAB scenario`, `fail TAB scenario TAB
  reason` or `lacks TAB scenario TAB reason` where the library does not have the feature. Reasons are one
  line. A scenario fails by itself after 30 s, the disruptive ones after 60 s, and the program goes on.
- Where a scenario needs the service to do something, the program prints `ask TAB verb TAB argument ...` and
  reads one line from standard input: `done`, `done TAB value`, or `error TAB reason`. The verbs are those of
  `Verb`.
- Exit code 0 once every scenario has its verdict. Everything else that a library logs goes to standard error.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Verb(StrEnum):
    """What a program may ask of the service; topics are full names."""

    PARTITION = "partition"
    """`partition TOPIC N`: create a partitioned topic, or grow it to N partitions."""
    TERMINATE = "terminate"
    """`terminate TOPIC`."""
    DEDUPLICATE = "deduplicate"
    """`deduplicate TOPIC`: turn deduplication on; done once the topic's broker applies it."""
    ENFORCE = "enforce"
    """`enforce TOPIC`: refuse producers without a schema, soon after this is done."""
    COMPACT = "compact"
    """`compact TOPIC`: compact it; done once its compaction has succeeded."""
    BACKLOG = "backlog"
    """`backlog TOPIC SUBSCRIPTION`: the value is the number of entries not acknowledged."""
    MOVE = "move"
    """`move TOPIC`: unload it, to another broker where there is one."""
    KILL = "kill"
    """`kill TOPIC`: SIGKILL to the broker that serves the topic, which is started again.

    Programs that run at the same time are all waited for, and one kill serves all of them.
    """


class Scenario(NamedTuple):
    """One row."""

    name: str
    does: str
    """What the program does and expects."""
    disruptive: bool = False
    """Whether it stops or moves what other programs use: these run last, all programs at the same time."""
    transactional: bool = False
    """Whether it needs transactions: programs of libraries that have none are not asked."""


_PUBLISHING: Final = (
    Scenario(
        "plain",
        "a producer without schema sends 10 messages, each awaited, and has a name; an Exclusive consumer"
        " at Earliest"
        " gets them in order with ascending ids, acknowledges them, and the backlog goes to 0",
    ),
    Scenario("compress-lz4", "10 messages of 10,000 bytes, compressed with LZ4, come back equal"),
    Scenario("compress-zlib", "10 messages of 10,000 bytes, compressed with ZLIB, come back equal"),
    Scenario("compress-zstd", "10 messages of 10,000 bytes, compressed with ZSTD, come back equal"),
    Scenario("compress-snappy", "10 messages of 10,000 bytes, compressed with SNAPPY, come back equal"),
    Scenario(
        "batches",
        "100 messages sent without waiting, in batches of at most 20, come back in order; ids say they were"
        " in batches"
        " where the library shows that",
    ),
    Scenario("keys", "partition key and ordering key come back; a message without a key has none"),
    Scenario("properties", "properties come back, with empty values and text beyond ASCII"),
    Scenario("event-time", "an event time in milliseconds comes back; publish time is near now"),
    Scenario(
        "chunks",
        "a message of 12,000,000 random bytes, sent in chunks, comes back equal between two small ones",
    ),
    Scenario(
        "too-large",
        "a message of 6,000,000 bytes without chunks fails at its sender, and the next small one is stored",
    ),
    Scenario(
        "producer-name",
        "a second producer with a name in use is refused; after the first is closed it is taken",
    ),
    Scenario(
        "access-exclusive",
        "an Exclusive producer keeps a second Exclusive producer out, and lets it in once closed",
    ),
    Scenario(
        "access-wait",
        "a WaitForExclusive producer is ready only after the holder has closed; then its message arrives",
    ),
    Scenario(
        "access-fencing",
        "an ExclusiveWithFencing producer takes the topic; the former holder's next send fails, its own"
        " arrives",
    ),
    Scenario(
        "partitioned",
        "on a topic of 3 partitions each of 10 keys stays in one partition and in order (50 messages), and"
        " 60 messages"
        " without key, by round robin without batches, reach all partitions",
    ),
    Scenario(
        "partitions-grow",
        "a producer or consumer that is opened after a topic grew from 2 to 4 partitions uses all 4",
    ),
    Scenario("non-persistent", "a connected consumer of a non-persistent topic gets 10 messages"),
    Scenario(
        "deduplication",
        "with deduplication on, sequence ids 0 to 9 and, by a new producer of the same name, 5 to 14 are 15"
        " messages",
    ),
    Scenario(
        "end-of-topic",
        "after `terminate` a send fails, and the consumer drains and is told the topic has ended",
    ),
    Scenario(
        "encryption",
        "messages encrypted with the public key come back in the clear to a consumer with the private key;"
        " one without"
        " it gets nothing in the clear",
    ),
    Scenario(
        "interceptors", "a producer's and a consumer's interceptors see each message and its acknowledgement"
    ),
)

_CONSUMING: Final = (
    Scenario(
        "initial-position",
        "of 5 earlier and 5 later messages a subscription at Earliest gets 10, one at Latest the later 5",
    ),
    Scenario("exclusive", "a second consumer is refused, and let in after the first has closed"),
    Scenario(
        "failover",
        "of two consumers one gets all 20 messages in order; when it closes without acknowledging the last"
        " 10, the other"
        " gets these in order and what is sent after",
    ),
    Scenario(
        "shared",
        "of two consumers each gets some of 40 messages, together each once; one closes with its last 5 not"
        " acknowledged, and the other gets these",
    ),
    Scenario(
        "shared-turns",
        "100 messages sent one at a time, 5 ms apart, to two consumers that acknowledge at once: each gets"
        " at least 30",
    ),
    Scenario(
        "key-shared",
        "100 messages of 20 keys, without batches: two consumers share the keys, each key is with one of"
        " them and in"
        " order; after one has closed the other gets 20 more of all keys, in order",
    ),
    Scenario(
        "sticky-ranges",
        "two Key_Shared consumers with the slots 0 to 32767 and 32768 to 65535 get each the keys of their"
        " slots"
        " (murmur3-32 of the key, seed 0, modulo 65536); a third with 0 to 100 is refused",
    ),
    Scenario(
        "unsubscribe", "after unsubscribing, a new subscription of that name at Latest gets only what is new"
    ),
    Scenario(
        "multi-topics",
        "one consumer of a list of 3 topics gets 30 messages, 10 of each with its topic's name",
    ),
    Scenario(
        "pattern", "one consumer of a pattern gets messages of two topics, and of a third created afterward"
    ),
    Scenario("queue-size-zero", "a consumer with a receiver queue of 0 gets 5 messages, one by one"),
    Scenario(
        "batch-receive", "a batch receive of at most 10 messages or 1 s gives 10, later the remaining 5"
    ),
    Scenario(
        "reader",
        "a reader at Earliest reads 10 messages while has-message-available says so, then it says no; one"
        " that starts at"
        " the id of the 5th gets the 6th, or the 5th when inclusive",
    ),
    Scenario(
        "last-message-id",
        "the last message id of a topic, asked through a consumer or reader, is the one sent last",
    ),
    Scenario("table-view", "a table view has the latest value of each of 5 keys, and follows an update"),
    Scenario(
        "read-compacted",
        "5 keys are sent one by one, then 3 of them again and an empty value of the 4th in one batch, then"
        " the 1st once more, and `compact` is asked for: a reader of the compacted view gets the last value"
        " of 4 keys in the order they were sent, is told that nothing more is available, and gets a message"
        " sent after that; a consumer of it gets the same 5, one that does not read the view all 11, and a"
        " table view, where the library has one, has 5 keys",
    ),
    Scenario(
        "seek-id",
        "after 10 acknowledged messages, a seek to the id of the 4th brings the 5th (or 4th) to the 10th"
        " again",
    ),
    Scenario(
        "seek-time",
        "a seek to a publish time between the 5th and 6th message brings the 6th to the 10th again",
    ),
)

_ACKNOWLEDGING: Final = (
    Scenario(
        "ack-individual", "of 10 messages the odd ones are acknowledged; the next consumer gets the even ones"
    ),
    Scenario(
        "ack-cumulative",
        "of 10 messages all up to the 5th are acknowledged at once; the next consumer gets 5",
    ),
    Scenario(
        "ack-batch-index",
        "of one batch of 10 messages 5 are acknowledged by batch index; the next consumer gets the other 5",
    ),
    Scenario(
        "nack",
        "a message given back twice (delay 100 ms or the least there is) comes with redelivery counts 1 and"
        " 2",
    ),
    Scenario(
        "dead-letter",
        "a message given back each time is on the dead letter topic after 3 deliveries (at most 2"
        " redeliveries), equal",
    ),
    Scenario(
        "retry-letter",
        "a message to be consumed later, in 1 s, comes again from the retry topic, marked as such",
    ),
    Scenario(
        "delayed",
        "a message delivered after 2 s on a Shared subscription lets one behind it pass, and comes 1.5 to"
        " 10 s later",
    ),
)

_SCHEMAS: Final = (
    Scenario("schema-string", "texts of a STRING schema come back"),
    Scenario("schema-int64", "numbers of an INT64 schema come back"),
    Scenario("schema-json", "a record of a JSON schema comes back"),
    Scenario("schema-avro", "a record of an AVRO schema comes back"),
    Scenario("schema-protobuf", "a message of a PROTOBUF schema comes back"),
    Scenario("schema-protobuf-native", "a message of a PROTOBUF_NATIVE schema comes back"),
    Scenario("schema-key-value", "keys and values of a KEY_VALUE schema come back"),
    Scenario(
        "schema-auto", "a consumer without knowledge of the AVRO schema reads its fields (AUTO_CONSUME)"
    ),
    Scenario(
        "schema-auto-produce",
        "a producer that takes the topic's schema (AUTO_PRODUCE) sends encoded bytes, which come back as a"
        " record with the topic's version; bytes of another form fail at their sender",
    ),
    Scenario(
        "schema-evolution",
        "a record schema with one more field, which has a default, is the next version; messages of both"
        " versions come back with their version, and the first schema is the first version still",
    ),
    Scenario(
        "schema-refused",
        "a producer with a field more that has no default, one with a schema of another type, and a consumer"
        " with such a schema are refused as incompatible; the producer before them goes on",
    ),
    Scenario(
        "schema-first-consumer",
        "the first consumer of a topic, behind one of AUTO_CONSUME where the library says so to brokers,"
        " brings the topic's schema: a producer with another is refused, one with the same is taken",
    ),
    Scenario(
        "schema-enforced",
        "after `enforce` a producer without a schema is refused, and one with the topic's schema is taken",
    ),
)

_TRANSACTIONS: Final = (
    Scenario(
        "txn-commit",
        "10 messages of an open transaction do not come; after its commit they come in order",
        transactional=True,
    ),
    Scenario(
        "txn-abort",
        "10 messages of an aborted transaction do not come, one sent after the abort does; so it is from"
        " Earliest",
        transactional=True,
    ),
    Scenario(
        "txn-batches",
        "of two transactions with 20 messages each, in batches of at most 10, one is aborted, and the"
        " messages of the other come in order",
        transactional=True,
    ),
    Scenario(
        "txn-partitioned",
        "of two transactions over the 3 partitions of a topic one is aborted, and the 9 messages of the"
        " other come",
        transactional=True,
    ),
    Scenario(
        "txn-order",
        "two open transactions hold back a plain message sent after them; with the second one committed"
        " nothing comes, with the first one everything, in the order of sending",
        transactional=True,
    ),
    Scenario(
        "txn-ack",
        "of 4 messages on a Shared subscription 2 are acknowledged in a transaction that commits and 1 in one"
        " that aborts: the next consumer gets that one and the fourth",
        transactional=True,
    ),
    Scenario(
        "txn-ack-cumulative",
        "of 10 messages all up to the 8th are acknowledged in a transaction that aborts, then all up to the"
        " 5th in one that commits: the next consumer gets 5",
        transactional=True,
    ),
    Scenario(
        "txn-ack-conflict",
        "a message that an open transaction acknowledged cannot be acknowledged in another one",
        transactional=True,
    ),
    Scenario(
        "txn-transform",
        "10 inputs are consumed, each with an output and its acknowledgement in one transaction; 3 times the"
        " transaction aborts and the input comes again: 10 outputs, each once",
        transactional=True,
    ),
    Scenario(
        "txn-timeout",
        "a transaction of 2 s that is not ended is aborted: its message does not come, the plain one behind"
        " it does, and its commit fails",
        transactional=True,
    ),
    Scenario(
        "txn-reader",
        "a reader is told that nothing is available behind an open and an aborted transaction, and reads what"
        " a third one committed",
        transactional=True,
    ),
    Scenario(
        "txn-moved",
        "two transactions publish and acknowledge, then `move` is asked for the topics of both; one is"
        " committed, one aborted, and outputs and inputs are as they should be",
        disruptive=True,
        transactional=True,
    ),
    Scenario(
        "txn-killed",
        "the same with `kill`",
        disruptive=True,
        transactional=True,
    ),
)

_DISRUPTIVE: Final = (
    Scenario(
        "moved",
        "while 300 messages are sent and received, `move` is asked for twice: every message arrives, in"
        " order but for"
        " repetitions, and no send fails",
        disruptive=True,
    ),
    Scenario(
        "killed",
        "while 300 messages are sent and received, `kill` is asked for once: every message whose send"
        " succeeded arrives,"
        " and producer and consumer go on by themselves",
        disruptive=True,
    ),
)

SCENARIOS: Final = (*_PUBLISHING, *_CONSUMING, *_ACKNOWLEDGING, *_SCHEMAS, *_TRANSACTIONS, *_DISRUPTIVE)
"""All of them, as tables list them."""

BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
