package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func reader(t *trial) {
	ids := t.sendTexts(t.producer(pulsar.ProducerOptions{}), numbered(0, 10)...)
	for _, each := range []struct {
		from      pulsar.MessageID
		inclusive bool
		first     int
	}{{pulsar.EarliestMessageID(), false, 0}, {ids[4], false, 5}, {ids[4], true, 4}} {
		reader := t.reader(each.from, each.inclusive)
		got := []string{}
		for reader.HasNext() {
			ctx, cancel := context.WithTimeout(t.ctx, receiveBound)
			message, err := reader.Next(ctx)
			cancel()
			t.must(err, "reading a message that is said to be there")
			got = append(got, string(message.Payload()))
		}
		t.ensure(slices.Equal(got, numbered(each.first, 10)), "from %v (inclusive: %t): %v", each.from, each.inclusive, got)
		reader.Close()
	}
}

func (t *trial) reader(from pulsar.MessageID, inclusive bool) pulsar.Reader {
	reader, err := t.client.CreateReader(pulsar.ReaderOptions{
		Topic: t.topic, StartMessageID: from, StartMessageIDInclusive: inclusive})
	t.must(err, "opening a reader")
	return reader
}

func lastMessageID(t *trial) {
	consumer, reader := t.consumer(earliest(pulsar.Exclusive)), t.reader(pulsar.EarliestMessageID(), false)
	ids := t.sendTexts(t.producer(alone), numbered(0, 3)...)
	check := func(sent pulsar.MessageID) {
		last, err := consumer.GetLastMessageIDs()
		t.must(err, "asking the consumer for the last id")
		t.ensure(len(last) == 1 && sameID(last[0], sent), "the consumer says %v, and sent was %v", last, sent)
		read, err := reader.GetLastMessageID()
		t.must(err, "asking the reader for the last id")
		t.ensure(sameID(read, sent), "the reader says %v, and sent was %v", read, sent)
	}
	check(ids[2])
	batched := t.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: 10 * time.Second})
	stored := make(chan pulsar.MessageID, 3)
	for _, text := range numbered(3, 6) {
		batched.SendAsync(t.ctx, &pulsar.ProducerMessage{Payload: []byte(text)},
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, _ error) { stored <- id })
	}
	t.must(batched.FlushWithCtx(t.ctx), "flushing")
	<-stored
	<-stored
	last := <-stored
	t.ensure(last != nil && last.BatchIdx() == 2, "the third of a batch has the id %v", last)
	check(last)
}

func tableView(t *trial) {
	schema := pulsar.NewStringSchema(nil) // the view cannot do without one
	producer := t.producer(pulsar.ProducerOptions{Schema: schema})
	update := func(round int) {
		for number := range 5 {
			t.send(producer, &pulsar.ProducerMessage{
				Key: fmt.Sprintf("key-%d", number), Value: fmt.Sprintf("value-%d", round)})
		}
	}
	update(0)
	update(1)
	view, err := t.client.CreateTableView(pulsar.TableViewOptions{
		Topic:           t.topic,
		Schema:          schema,
		SchemaValueType: reflect.TypeFor[*string](),
	})
	t.must(err, "opening a table view")
	defer view.Close()
	holds := func(value string) bool {
		for number := range 5 {
			got, isText := view.Get(fmt.Sprintf("key-%d", number)).(*string)
			if !isText || *got != value {
				return false
			}
		}
		return view.Size() == 5
	}
	t.ensure(holds("value-1"), "the table view has %v", view.Keys())
	update(2)
	for !holds("value-2") {
		t.wait(10 * time.Millisecond)
	}
}

func readCompacted(t *trial) {
	schema := pulsar.NewStringSchema(nil) // the table view cannot do without one
	oneByOne := t.producer(pulsar.ProducerOptions{DisableBatching: true, Schema: schema})
	keyed := func(key, value string) *pulsar.ProducerMessage {
		return &pulsar.ProducerMessage{Key: key, Value: value}
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		t.send(oneByOne, keyed(key, key+"1"))
	}
	batching := t.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: 10 * time.Second, Schema: schema})
	t.sendTogether(batching, []*pulsar.ProducerMessage{
		keyed("a", "a2"), keyed("b", "b2"), keyed("c", "c2"), keyed("d", "")})
	t.send(oneByOne, keyed("a", "a3"))
	t.ask("compact", t.topic)
	reader, err := t.client.CreateReader(pulsar.ReaderOptions{
		Topic: t.topic, StartMessageID: pulsar.EarliestMessageID(), ReadCompacted: true})
	t.must(err, "opening a reader of the compacted view")
	view := []string{"e1", "b2", "c2", "a3"}
	got := withValue(t.readAll(reader))
	t.ensure(slices.Equal(got, view), "the compacted view has %q", got)
	t.send(oneByOne, keyed("f", "f1"))
	got = t.readAll(reader)
	t.ensure(slices.Equal(got, []string{"f1"}), "after the compacted view comes %q", got)
	options := earliest(pulsar.Exclusive)
	options.ReadCompacted = true
	got = withValue(texts(t.receiveMany(t.consumer(options), 7)))
	t.ensure(slices.Equal(got, append(view, "f1")), "a consumer of the compacted view gets %q", got)
	options.SubscriptionName, options.ReadCompacted = "all", false
	t.expectTexts(t.consumer(options), "a1", "b1", "c1", "d1", "e1", "a2", "b2", "c2", "", "a3", "f1")
	t.compactedTable(map[string]string{"a": "a3", "b": "b2", "c": "c2", "e": "e1", "f": "f1"})
}

// withValue drops messages without a value: this library hands on what is compacted out of a batch as such.
func withValue(texts []string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// readAll reads while a message is said to be available.
func (t *trial) readAll(reader pulsar.Reader) []string {
	got := []string{}
	for reader.HasNext() {
		ctx, cancel := context.WithTimeout(t.ctx, receiveBound)
		message, err := reader.Next(ctx)
		cancel()
		t.must(err, "reading a message that is said to be there")
		got = append(got, string(message.Payload()))
	}
	return got
}

// compactedTable checks the content of a table view of the topic.
func (t *trial) compactedTable(expected map[string]string) {
	view, err := t.client.CreateTableView(pulsar.TableViewOptions{
		Topic:           t.topic,
		Schema:          pulsar.NewStringSchema(nil),
		SchemaValueType: reflect.TypeFor[*string](),
	})
	t.must(err, "opening a table view")
	defer view.Close()
	t.ensure(view.Size() == len(expected), "the table view has %v", view.Keys())
	for key, value := range expected {
		got, isText := view.Get(key).(*string)
		t.ensure(isText && *got == value, "the table view has %v for %s", view.Get(key), key)
	}
}

func seekID(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(alone)
	t.sendTexts(producer, numbered(0, 10)...)
	messages := t.expectTexts(consumer, numbered(0, 10)...)
	t.must(consumer.Seek(messages[3].ID()), "seeking")
	first := t.receive(consumer)
	t.ack(consumer, first)
	switch string(first.Payload()) {
	case "message-3":
		t.expectOnly(consumer, producer, numbered(4, 10)...)
	case "message-4":
		t.expectOnly(consumer, producer, numbered(5, 10)...)
	default:
		t.fail("after a seek to message-3 came %s", first.Payload())
	}
}

func seekTime(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(alone)
	t.sendTexts(producer, numbered(0, 5)...)
	t.wait(20 * time.Millisecond)
	between := time.Now()
	t.wait(20 * time.Millisecond)
	t.sendTexts(producer, numbered(5, 10)...)
	t.expectTexts(consumer, numbered(0, 10)...)
	t.must(consumer.SeekByTime(between), "seeking")
	t.expectOnly(consumer, producer, numbered(5, 10)...)
}
