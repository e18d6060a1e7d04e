// Runs the scenarios of tests/clients/catalogue.py with Apache Pulsar's Go client.
//
// Called as `PROGRAM SERVICE_URL PREFIX KEYS [SCENARIO ...]`; without names, all calm scenarios run.
package main

import (
	"fmt"
	"os"
	"time"
)

const (
	calmBound       = 30 * time.Second
	disruptiveBound = 300 * time.Second
)

// scenario is one row of the catalogue.
type scenario struct {
	name  string
	run   func(*trial)
	bound time.Duration
}

var scenarios = []scenario{
	{"plain", plain, calmBound},
	{"compress-lz4", compressLZ4, calmBound},
	{"compress-zlib", compressZLib, calmBound},
	{"compress-zstd", compressZSTD, calmBound},
	{"compress-snappy", compressSnappy, calmBound},
	{"batches", batches, calmBound},
	{"keys", keys, calmBound},
	{"properties", properties, calmBound},
	{"event-time", eventTime, calmBound},
	{"chunks", chunks, calmBound},
	{"too-large", tooLarge, calmBound},
	{"producer-name", producerName, calmBound},
	{"access-exclusive", accessExclusive, calmBound},
	{"access-wait", accessWait, calmBound},
	{"access-fencing", accessFencing, calmBound},
	{"partitioned", partitioned, calmBound},
	{"partitions-grow", partitionsGrow, calmBound},
	{"non-persistent", nonPersistent, calmBound},
	{"deduplication", deduplication, calmBound},
	{"end-of-topic", endOfTopic, calmBound},
	{"encryption", encryption, calmBound},
	{"interceptors", interceptors, calmBound},
	{"initial-position", initialPosition, calmBound},
	{"exclusive", exclusive, calmBound},
	{"failover", failover, calmBound},
	{"shared", shared, calmBound},
	{"shared-turns", sharedTurns, calmBound},
	{"key-shared", keyShared, calmBound},
	{"sticky-ranges", stickyRanges, calmBound},
	{"unsubscribe", unsubscribe, calmBound},
	{"multi-topics", multiTopics, calmBound},
	{"pattern", pattern, calmBound},
	{"queue-size-zero", queueSizeZero, calmBound},
	{"batch-receive", batchReceive, calmBound},
	{"reader", reader, calmBound},
	{"last-message-id", lastMessageID, calmBound},
	{"table-view", tableView, calmBound},
	{"read-compacted", readCompacted, calmBound},
	{"seek-id", seekID, calmBound},
	{"seek-time", seekTime, calmBound},
	{"ack-individual", ackIndividual, calmBound},
	{"ack-cumulative", ackCumulative, calmBound},
	{"ack-batch-index", ackBatchIndex, calmBound},
	{"nack", nack, calmBound},
	{"dead-letter", deadLetter, calmBound},
	{"retry-letter", retryLetter, calmBound},
	{"delayed", delayed, calmBound},
	{"schema-string", schemaString, calmBound},
	{"schema-int64", schemaInt64, calmBound},
	{"schema-json", schemaJSON, calmBound},
	{"schema-avro", schemaAvro, calmBound},
	{"schema-protobuf", schemaProtobuf, calmBound},
	{"schema-protobuf-native", schemaProtobufNative, calmBound},
	{"schema-key-value", schemaKeyValue, calmBound},
	{"schema-auto", schemaAuto, calmBound},
	{"schema-auto-produce", schemaAutoProduce, calmBound},
	{"schema-evolution", schemaEvolution, calmBound},
	{"schema-refused", schemaRefused, calmBound},
	{"schema-first-consumer", schemaFirstConsumer, calmBound},
	{"schema-enforced", schemaEnforced, calmBound},
	{"txn-commit", txnCommit, calmBound},
	{"txn-abort", txnAbort, calmBound},
	{"txn-batches", txnBatches, calmBound},
	{"txn-partitioned", txnPartitioned, calmBound},
	{"txn-order", txnOrder, calmBound},
	{"txn-ack", txnAck, calmBound},
	{"txn-ack-cumulative", txnAckCumulative, calmBound},
	{"txn-ack-conflict", txnAckConflict, calmBound},
	{"txn-transform", txnTransform, calmBound},
	{"txn-timeout", txnTimeout, calmBound},
	{"txn-reader", txnReader, calmBound},
	{"txn-moved", txnMoved, disruptiveBound},
	{"txn-killed", txnKilled, disruptiveBound},
	{"moved", moved, disruptiveBound},
	{"killed", killed, disruptiveBound},
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintf(os.Stderr, "usage: %s SERVICE_URL PREFIX KEYS [SCENARIO ...]\n", os.Args[0])
		os.Exit(2)
	}
	given := setting{service: os.Args[1], prefix: os.Args[2], keys: os.Args[3]}
	harness := newHarness(os.Stdin, os.Stdout)
	for _, chosen := range choose(os.Args[4:]) {
		harness.say("begin", chosen.name)
		verdict, reason := conduct(chosen, given, harness)
		if reason == "" {
			harness.say(verdict, chosen.name)
		} else {
			harness.say(verdict, chosen.name, oneLine(reason))
		}
	}
}

// choose gives the named scenarios, in that order, or all calm ones.
func choose(names []string) []scenario {
	known := map[string]scenario{}
	calm := []scenario{}
	for _, each := range scenarios {
		known[each.name] = each
		if each.bound == calmBound {
			calm = append(calm, each)
		}
	}
	if len(names) == 0 {
		return calm
	}
	chosen := []scenario{}
	for _, name := range names {
		each, found := known[name]
		if !found {
			unknown := func(t *trial) { t.fail("this program has no scenario of that name") }
			each = scenario{name, unknown, calmBound}
		}
		chosen = append(chosen, each)
	}
	return chosen
}
