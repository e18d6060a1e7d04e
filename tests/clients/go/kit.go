package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	receiveBound = 10 * time.Second
	sendBound    = 10 * time.Second
	quiet        = 300 * time.Millisecond // how long an absence is watched where nothing else tells it
)

// alone makes a producer send each message as an entry of its own.
var alone = pulsar.ProducerOptions{DisableBatching: true}

// earliest gives the options of a subscription that starts at the first message and acknowledges with answers.
func earliest(kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{
		SubscriptionName:            "subscription",
		Type:                        kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		AckWithResponse:             true,
	}
}

const (
	movingTries = 50
	movingPause = 200 * time.Millisecond
)

// isMoving says whether a broker refused because the topic moved after it was looked up. Other programs move it
// meanwhile, and the library leaves it to its caller to open a producer or consumer again.
func isMoving(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ServiceNotReady")
}

// producer opens one on the scenario's topic unless the options name another.
func (t *trial) producer(options pulsar.ProducerOptions) pulsar.Producer {
	producer, err := t.tryProducer(options)
	for tries := 1; isMoving(err) && tries < movingTries; tries++ {
		time.Sleep(movingPause)
		producer, err = t.tryProducer(options)
	}
	t.must(err, "opening a producer")
	return producer
}

func (t *trial) tryProducer(options pulsar.ProducerOptions) (pulsar.Producer, error) {
	if options.Topic == "" {
		options.Topic = t.topic
	}
	if options.SendTimeout == 0 {
		options.SendTimeout = sendBound
	}
	return t.client.CreateProducer(options)
}

// consumer subscribes to the scenario's topic unless the options name others.
func (t *trial) consumer(options pulsar.ConsumerOptions) pulsar.Consumer {
	consumer, err := t.tryConsumer(options)
	for tries := 1; isMoving(err) && tries < movingTries; tries++ {
		time.Sleep(movingPause)
		consumer, err = t.tryConsumer(options)
	}
	t.must(err, "subscribing")
	return consumer
}

func (t *trial) tryConsumer(options pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	if options.Topic == "" && options.Topics == nil && options.TopicsPattern == "" {
		options.Topic = t.topic
	}
	return t.client.Subscribe(options)
}

// send publishes a message and waits until it is stored.
func (t *trial) send(producer pulsar.Producer, message *pulsar.ProducerMessage) pulsar.MessageID {
	id, err := producer.Send(t.ctx, message)
	t.must(err, "sending")
	return id
}

// sendTexts publishes them one after the other, each awaited.
func (t *trial) sendTexts(producer pulsar.Producer, texts ...string) []pulsar.MessageID {
	ids := []pulsar.MessageID{}
	for _, text := range texts {
		ids = append(ids, t.send(producer, &pulsar.ProducerMessage{Payload: []byte(text)}))
	}
	return ids
}

// sendTogether publishes without waiting in between, then waits for all.
func (t *trial) sendTogether(producer pulsar.Producer, messages []*pulsar.ProducerMessage) {
	failed := make(chan error, len(messages))
	for _, message := range messages {
		producer.SendAsync(t.ctx, message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			failed <- err
		})
	}
	t.must(producer.FlushWithCtx(t.ctx), "flushing")
	for range messages {
		select {
		case err := <-failed:
			t.must(err, "sending")
		case <-t.ctx.Done():
			t.must(t.ctx.Err(), "waiting for sends")
		}
	}
}

// receive gives the next message.
func (t *trial) receive(consumer pulsar.Consumer) pulsar.Message {
	ctx, cancel := context.WithTimeout(t.ctx, receiveBound)
	defer cancel()
	message, err := consumer.Receive(ctx)
	t.must(err, "receiving")
	return message
}

// receiveMany gives the next messages, in the order of their arrival.
func (t *trial) receiveMany(consumer pulsar.Consumer, count int) []pulsar.Message {
	messages := []pulsar.Message{}
	for number := range count {
		ctx, cancel := context.WithTimeout(t.ctx, receiveBound)
		message, err := consumer.Receive(ctx)
		cancel()
		t.must(err, fmt.Sprintf("receiving message %d of %d, after %v", number+1, count, texts(messages)))
		messages = append(messages, message)
	}
	return messages
}

// receiveNothing checks that no message comes for a moment.
func (t *trial) receiveNothing(consumer pulsar.Consumer) {
	ctx, cancel := context.WithTimeout(t.ctx, quiet)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err == nil {
		t.fail("got %q where nothing was to come", message.Payload())
	}
	t.ensure(timedOut(err), "receiving: %v", err)
}

// receiveEither gives the next message of two consumers, and which of them it came to.
func (t *trial) receiveEither(first, second pulsar.Consumer, had int) (pulsar.Consumer, pulsar.Message) {
	select {
	case got := <-first.Chan():
		return first, got.Message
	case got := <-second.Chan():
		return second, got.Message
	case <-time.After(receiveBound):
		t.fail("two consumers got %d messages, and no further one within %s", had, receiveBound)
	case <-t.ctx.Done():
		t.must(t.ctx.Err(), "receiving")
	}
	return nil, nil
}

// expectTexts checks that the next messages are exactly these, in order, and acknowledges them.
func (t *trial) expectTexts(consumer pulsar.Consumer, expected ...string) []pulsar.Message {
	messages := t.receiveMany(consumer, len(expected))
	t.ensure(reflect.DeepEqual(texts(messages), expected), "got %v instead of %v", texts(messages), expected)
	t.ack(consumer, messages...)
	return messages
}

// expectOnly checks that these messages come in order, and then the one that is sent now.
func (t *trial) expectOnly(consumer pulsar.Consumer, producer pulsar.Producer, expected ...string) {
	t.sendTexts(producer, "last")
	t.expectTexts(consumer, append(expected, "last")...)
}

func (t *trial) ack(consumer pulsar.Consumer, messages ...pulsar.Message) {
	for _, message := range messages {
		t.must(consumer.Ack(message), "acknowledging")
	}
}

// refused checks that an attempt failed with one of the service's error codes.
func (t *trial) refused(err error, attempt string, codes ...string) {
	if err == nil {
		t.fail("%s was not refused", attempt)
	}
	for _, code := range codes {
		if strings.Contains(err.Error(), code) {
			return
		}
	}
	t.fail("%s was refused with %q instead of %v", attempt, err, codes)
}

// numbered gives the texts of messages from first up to, but without, end.
func numbered(first, end int) []string {
	names := []string{}
	for number := first; number < end; number++ {
		names = append(names, fmt.Sprintf("message-%d", number))
	}
	return names
}

func texts(messages []pulsar.Message) []string {
	found := []string{}
	for _, message := range messages {
		text := string(message.Payload())
		if len(text) > 40 {
			text = fmt.Sprintf("%q... (%d bytes)", text[:20], len(text))
		}
		found = append(found, text)
	}
	return found
}

// before tells the order of two ids of one partition.
func before(first, second pulsar.MessageID) bool {
	if first.LedgerID() != second.LedgerID() {
		return first.LedgerID() < second.LedgerID()
	}
	if first.EntryID() != second.EntryID() {
		return first.EntryID() < second.EntryID()
	}
	return first.BatchIdx() < second.BatchIdx()
}

func sameID(first, second pulsar.MessageID) bool {
	return first.LedgerID() == second.LedgerID() &&
		first.EntryID() == second.EntryID() &&
		first.BatchIdx() == second.BatchIdx()
}
