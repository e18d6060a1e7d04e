package main

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	ttl         = 5 * time.Minute
	answerMax   = 15 * time.Second // less than the client's timeout of 20 s, which a silent broker leads to
	attemptsMax = 5
)

// begin opens a transaction.
func (t *trial) begin(client pulsar.Client) pulsar.Transaction {
	transaction, err := client.NewTransaction(ttl)
	t.must(err, "beginning a transaction")
	return transaction
}

func (t *trial) commit(transaction pulsar.Transaction) {
	t.must(transaction.Commit(t.ctx), "committing")
}

func (t *trial) abort(transaction pulsar.Transaction) {
	t.must(transaction.Abort(t.ctx), "aborting")
}

// sendIn publishes messages in a transaction, each awaited.
func (t *trial) sendIn(producer pulsar.Producer, transaction pulsar.Transaction, texts ...string) {
	for _, text := range texts {
		t.send(producer, &pulsar.ProducerMessage{Payload: []byte(text), Transaction: transaction})
	}
}

func (t *trial) ackIn(consumer pulsar.Consumer, transaction pulsar.Transaction, messages ...pulsar.Message) {
	for _, message := range messages {
		t.must(consumer.AckWithTxn(message, transaction), "acknowledging in a transaction")
	}
}

// onTransactional opens a producer and a consumer of the scenario's topic, on a client that can begin transactions.
func (t *trial) onTransactional(kind pulsar.SubscriptionType) (pulsar.Client, pulsar.Producer, pulsar.Consumer) {
	t.client = t.newClientOf(true)
	return t.client, t.producer(alone), t.consumer(earliest(kind))
}

func txnCommit(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Exclusive)
	transaction := t.begin(client)
	t.sendIn(producer, transaction, numbered(0, 10)...)
	t.receiveNothing(consumer)
	t.commit(transaction)
	t.expectOnly(consumer, producer, numbered(0, 10)...)
}

func txnAbort(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Exclusive)
	transaction := t.begin(client)
	t.sendIn(producer, transaction, numbered(0, 10)...)
	t.abort(transaction)
	t.expectOnly(consumer, producer)
	options := earliest(pulsar.Exclusive)
	options.SubscriptionName = "another"
	again := t.consumer(options)
	t.expectTexts(again, "last")
	t.receiveNothing(again)
}

func txnBatches(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Exclusive)
	producer.Close()
	batching := t.producer(pulsar.ProducerOptions{BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second})
	aborted, committed := t.begin(client), t.begin(client)
	for _, transaction := range []pulsar.Transaction{aborted, committed} {
		messages := []*pulsar.ProducerMessage{}
		for _, text := range numbered(0, 20) {
			messages = append(messages, &pulsar.ProducerMessage{Payload: []byte(text), Transaction: transaction})
		}
		t.sendTogether(batching, messages)
	}
	t.abort(aborted)
	t.commit(committed)
	t.expectTexts(consumer, numbered(0, 20)...)
	t.receiveNothing(consumer)
}

func txnPartitioned(t *trial) {
	t.ask("partition", t.topic, "3")
	client, producer, consumer := t.onTransactional(pulsar.Exclusive)
	aborted, committed := t.begin(client), t.begin(client)
	t.sendIn(producer, aborted, numbered(0, 9)...)
	t.sendIn(producer, committed, numbered(10, 19)...)
	t.abort(aborted)
	t.commit(committed)
	messages := t.receiveMany(consumer, 9)
	found := texts(messages)
	slices.Sort(found)
	t.ensure(reflect.DeepEqual(found, numbered(10, 19)), "got %v", found)
	t.ack(consumer, messages...)
	t.receiveNothing(consumer)
}

func txnOrder(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Exclusive)
	t.sendTexts(producer, "before")
	first, second := t.begin(client), t.begin(client)
	t.sendIn(producer, first, "first")
	t.sendIn(producer, second, "second")
	t.sendTexts(producer, "plain")
	t.expectTexts(consumer, "before")
	t.commit(second)
	t.receiveNothing(consumer)
	t.commit(first)
	t.expectTexts(consumer, "first", "second", "plain")
}

func txnAck(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Shared)
	t.sendTexts(producer, numbered(0, 4)...)
	messages := t.receiveMany(consumer, 4)
	committed, aborted := t.begin(client), t.begin(client)
	t.ackIn(consumer, committed, messages[:2]...)
	t.ackIn(consumer, aborted, messages[2])
	t.commit(committed)
	t.abort(aborted)
	consumer.Close()
	next := t.consumer(earliest(pulsar.Shared))
	left := t.receiveMany(next, 2)
	found := texts(left)
	slices.Sort(found)
	t.ensure(reflect.DeepEqual(found, numbered(2, 4)), "got %v after the ends", found)
	t.ack(next, left...)
	t.receiveNothing(next)
}

func txnAckCumulative(t *trial) {
	t.lacks("no cumulative acknowledgement in a transaction")
}

func txnAckConflict(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Shared)
	t.sendTexts(producer, "contested")
	message := t.receive(consumer)
	first, second := t.begin(client), t.begin(client)
	t.ackIn(consumer, first, message)
	err := consumer.AckWithTxn(message, second)
	t.ensure(err != nil, "a second transaction acknowledged the same message")
	t.commit(first)
	consumer.Close()
	t.receiveNothing(t.consumer(earliest(pulsar.Shared)))
}

func txnTransform(t *trial) {
	client, inputs, consumer := t.onTransactional(pulsar.Shared)
	outputs := t.producer(pulsar.ProducerOptions{Topic: t.topic + "-out", DisableBatching: true})
	options := earliest(pulsar.Exclusive)
	options.Topic = t.topic + "-out"
	result := t.consumer(options)
	t.sendTexts(inputs, numbered(0, 10)...)
	done, aborts := 0, 0
	for round := 0; done < 10; round++ {
		message := t.receive(consumer)
		transaction := t.begin(client)
		t.sendIn(outputs, transaction, string(message.Payload()))
		t.ackIn(consumer, transaction, message)
		if round%3 == 0 && aborts < 3 {
			aborts++
			t.abort(transaction)
		} else {
			t.commit(transaction)
			done++
		}
	}
	messages := t.receiveMany(result, 10)
	found := texts(messages)
	slices.Sort(found)
	t.ensure(reflect.DeepEqual(found, numbered(0, 10)), "got %v", found)
	t.receiveNothing(result)
}

func txnTimeout(t *trial) {
	client, producer, consumer := t.onTransactional(pulsar.Exclusive)
	transaction, err := client.NewTransaction(2 * time.Second)
	t.must(err, "beginning a transaction")
	t.sendIn(producer, transaction, "late")
	t.sendTexts(producer, "plain")
	t.receiveNothing(consumer)
	t.expectTexts(consumer, "plain")
	t.receiveNothing(consumer)
	t.ensure(transaction.Commit(t.ctx) != nil, "a transaction that timed out was committed")
}

func txnReader(t *trial) {
	client, producer, _ := t.onTransactional(pulsar.Exclusive)
	t.sendTexts(producer, "first")
	open := t.begin(client)
	t.sendIn(producer, open, "aborted")
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: t.topic, StartMessageID: pulsar.EarliestMessageID()})
	t.must(err, "opening a reader")
	next := func(expected string) {
		t.ensure(reader.HasNext(), "no message is available where %s is", expected)
		message, err := reader.Next(t.ctx)
		t.must(err, "reading")
		t.ensure(string(message.Payload()) == expected, "read %s instead of %s", message.Payload(), expected)
	}
	next("first")
	t.ensure(!reader.HasNext(), "a message of an open transaction is available")
	t.abort(open)
	t.ensure(!reader.HasNext(), "a message of an aborted transaction is available")
	second := t.begin(client)
	t.sendIn(producer, second, "committed")
	t.commit(second)
	next("committed")
	t.ensure(!reader.HasNext(), "a message is available at the end")
}

func txnMoved(t *trial) {
	txnDisrupted(t, "move")
}

func txnKilled(t *trial) {
	txnDisrupted(t, "kill")
}

func txnDisrupted(t *trial, verb string) {
	topic := t.topic
	for attempt := 1; ; attempt++ {
		t.topic = fmt.Sprintf("%s-%d", topic, attempt)
		if txnDisruptedOnTopic(t, verb) {
			return
		}
		t.ensure(attempt < attemptsMax, "acknowledgements failed on %d topics", attempt)
	}
}

// txnDisruptedOnTopic ends transactions after a disruption that they were open in. False: another program moved the
// topic meanwhile, so that an acknowledgement failed, at once. Its transaction cannot be committed any more.
func txnDisruptedOnTopic(t *trial, verb string) bool {
	client, inputs, consumer := t.onTransactional(pulsar.Shared)
	outputs := t.producer(pulsar.ProducerOptions{Topic: t.topic + "-out", DisableBatching: true})
	// Before the messages: those of a ledger that ends, as with a move, go if no subscription keeps them.
	options := earliest(pulsar.Exclusive)
	options.Topic = t.topic + "-out"
	t.consumer(options).Close()
	t.sendTexts(inputs, numbered(0, 2)...)
	messages := t.receiveMany(consumer, 2)
	committed, aborted := t.begin(client), t.begin(client)
	t.sendIn(outputs, committed, "committed")
	t.sendIn(outputs, aborted, "aborted")
	for number, transaction := range []pulsar.Transaction{committed, aborted} {
		begun := time.Now()
		if err := consumer.AckWithTxn(messages[number], transaction); err != nil {
			t.ensure(time.Since(begun) < answerMax, "an acknowledgement has no answer: %v", err)
			return false
		}
	}
	t.ask(verb, t.topic+"-out")
	if verb == "move" {
		t.ask(verb, t.topic)
	}
	t.commit(committed)
	t.abort(aborted)
	t.sendTexts(outputs, "after")
	result, found := t.consumer(options), []string{}
	for len(found) < 2 { // other programs move the topic, too: then messages may repeat
		if text := string(t.receiveMany(result, 1)[0].Payload()); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	t.ensure(reflect.DeepEqual(found, []string{"committed", "after"}), "outputs %v", found)
	consumer.Close()
	next := t.consumer(earliest(pulsar.Shared))
	t.expectTexts(next, string(messages[1].Payload()))
	t.receiveNothing(next)
	return true
}
