package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func plain(t *trial) {
	options := earliest(pulsar.Exclusive)
	options.AckWithResponse = false // acknowledgments in groups, as by default
	consumer := t.consumer(options)
	producer := t.producer(pulsar.ProducerOptions{})
	t.ensure(producer.Name() != "", "the producer has no name")
	t.sendTexts(producer, numbered(0, 10)...)
	messages := t.expectTexts(consumer, numbered(0, 10)...)
	for number, message := range messages {
		t.ensure(message.ProducerName() == producer.Name(), "a message is of producer %q", message.ProducerName())
		if number > 0 {
			t.ensure(before(messages[number-1].ID(), message.ID()), "id %v is not above the one before", message.ID())
		}
	}
	for backlog := ""; backlog != "0"; t.wait(50 * time.Millisecond) {
		backlog = t.ask("backlog", t.topic, options.SubscriptionName)
	}
}

func compressLZ4(t *trial)    { compress(t, pulsar.LZ4) }
func compressZLib(t *trial)   { compress(t, pulsar.ZLib) }
func compressZSTD(t *trial)   { compress(t, pulsar.ZSTD) }
func compressSnappy(t *trial) { compress(t, pulsar.SNAPPY) }

func compress(t *trial, kind pulsar.CompressionType) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(pulsar.ProducerOptions{CompressionType: kind})
	sent := [][]byte{}
	for number := range 10 {
		payload := bytes.Repeat([]byte(fmt.Sprintf("message %d, ", number)), 1000)[:10_000]
		sent = append(sent, payload)
		t.send(producer, &pulsar.ProducerMessage{Payload: payload})
	}
	for number, message := range t.receiveMany(consumer, len(sent)) {
		t.ensure(bytes.Equal(message.Payload(), sent[number]), "message %d came back different", number)
		t.ack(consumer, message)
	}
}

func batches(t *trial) {
	const batch = 20
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(pulsar.ProducerOptions{BatchingMaxMessages: batch, BatchingMaxPublishDelay: 10 * time.Second})
	messages := []*pulsar.ProducerMessage{}
	for _, text := range numbered(0, 100) {
		messages = append(messages, &pulsar.ProducerMessage{Payload: []byte(text)})
	}
	t.sendTogether(producer, messages)
	for _, message := range t.expectTexts(consumer, numbered(0, 100)...) {
		id := message.ID()
		held := id.BatchIdx() >= 0 && id.BatchIdx() < id.BatchSize() && id.BatchSize() > 1 && id.BatchSize() <= batch
		t.ensure(held, "index %d in a batch of %d", id.BatchIdx(), id.BatchSize())
	}
}

func keys(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	sent := [][2]string{{"partition", "ordering"}, {"partition", ""}, {"", "ordering"}, {"", ""}}
	batched, single := t.producer(pulsar.ProducerOptions{}), t.producer(alone)
	for _, producer := range []pulsar.Producer{batched, single} {
		for _, pair := range sent {
			t.send(producer, &pulsar.ProducerMessage{Payload: []byte("x"), Key: pair[0], OrderingKey: pair[1]})
		}
		for _, pair := range sent {
			message := t.receive(consumer)
			got := [2]string{message.Key(), message.OrderingKey()}
			t.ensure(got == pair, "key and ordering key came back as %q instead of %q", got, pair)
			t.ack(consumer, message)
		}
	}
}

func properties(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	sent := map[string]string{"plain": "value", "empty": "", "größe": "naïve 東京 🚀", "": "no name"}
	for _, options := range []pulsar.ProducerOptions{{}, alone} {
		t.send(t.producer(options), &pulsar.ProducerMessage{Payload: []byte("x"), Properties: sent})
		message := t.receive(consumer)
		t.ensure(maps.Equal(message.Properties(), sent), "properties came back as %q", message.Properties())
		t.ack(consumer, message)
	}
}

func eventTime(t *trial) {
	const nearby = 60_000 // ms; the service may be on a machine with another clock
	consumer := t.consumer(earliest(pulsar.Exclusive))
	happened := time.UnixMilli(1_234_567_890_123)
	t.send(t.producer(pulsar.ProducerOptions{}), &pulsar.ProducerMessage{Payload: []byte("x"), EventTime: happened})
	message := t.receive(consumer)
	t.ensure(message.EventTime().Equal(happened), "the event time came back as %v", message.EventTime())
	age := time.Since(message.PublishTime()).Milliseconds()
	t.ensure(-nearby < age && age < nearby, "the publish time is %d ms ago", age)
	t.ack(consumer, message)
}

func chunks(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true})
	large := make([]byte, 12_000_000)
	rand.New(rand.NewSource(1)).Read(large)
	for _, payload := range [][]byte{[]byte("first"), large, []byte("last")} {
		t.send(producer, &pulsar.ProducerMessage{Payload: payload})
	}
	for _, expected := range [][]byte{[]byte("first"), large, []byte("last")} {
		message := t.receive(consumer)
		same := bytes.Equal(message.Payload(), expected)
		t.ensure(same, "%d bytes came back as %d other ones", len(expected), len(message.Payload()))
		t.ack(consumer, message)
	}
}

func tooLarge(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(alone)
	_, err := producer.Send(t.ctx, &pulsar.ProducerMessage{Payload: make([]byte, 6_000_000)})
	t.ensure(errors.Is(err, pulsar.ErrMessageTooLarge), "6,000,000 bytes: %v instead of too large", err)
	t.sendTexts(producer, "small")
	t.expectOnly(consumer, producer, "small")
}

func producerName(t *trial) {
	options := pulsar.ProducerOptions{Name: "the-name"}
	first := t.producer(options)
	t.ensure(first.Name() == options.Name, "the producer is named %q", first.Name())
	_, err := t.tryProducer(options)
	t.refused(err, "a second producer of the same name", "ProducerBusy")
	t.sendTexts(first, "first")
	first.Close()
	t.sendTexts(t.producer(options), "second")
	t.expectTexts(t.consumer(earliest(pulsar.Exclusive)), "first", "second")
}

func accessExclusive(t *trial) {
	options := pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first := t.producer(options)
	_, err := t.tryProducer(options)
	t.refused(err, "a second Exclusive producer", "ProducerFenced")
	_, err = t.tryProducer(pulsar.ProducerOptions{})
	t.refused(err, "a Shared producer beside an Exclusive one", "ProducerBusy")
	t.sendTexts(first, "first")
	first.Close()
	t.sendTexts(t.producer(options), "second")
	t.expectTexts(t.consumer(earliest(pulsar.Exclusive)), "first", "second")
}

func accessWait(t *trial) {
	holder := t.producer(pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	type opened struct {
		producer pulsar.Producer
		err      error
	}
	ready := make(chan opened, 1)
	go func() {
		producer, err := t.tryProducer(
			pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive})
		ready <- opened{producer, err}
	}()
	select {
	case early := <-ready:
		t.fail("the waiting producer was ready (error: %v) while the holder was open", early.err)
	case <-time.After(quiet):
	}
	t.sendTexts(holder, "holder")
	holder.Close()
	select {
	case waited := <-ready:
		t.must(waited.err, "waiting for exclusive access")
		t.sendTexts(waited.producer, "waiting")
	case <-time.After(receiveBound):
		t.fail("the waiting producer was not ready %s after the holder had closed", receiveBound)
	}
	t.expectTexts(t.consumer(earliest(pulsar.Exclusive)), "holder", "waiting")
}

func accessFencing(t *trial) {
	t.lacks("no ExclusiveWithFencing access mode in this client")
}
