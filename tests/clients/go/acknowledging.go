package main

import (
	"maps"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func ackIndividual(t *trial) {
	options := earliest(pulsar.Exclusive)
	producer := t.producer(alone)
	first := t.consumer(options)
	t.sendTexts(producer, numbered(0, 10)...)
	even := []string{}
	for number, message := range t.receiveMany(first, 10) {
		if number%2 == 1 {
			t.ack(first, message)
		} else {
			even = append(even, string(message.Payload()))
		}
	}
	first.Close()
	t.expectOnly(t.consumer(options), producer, even...)
}

func ackCumulative(t *trial) {
	options := earliest(pulsar.Exclusive)
	producer := t.producer(alone)
	first := t.consumer(options)
	t.sendTexts(producer, numbered(0, 10)...)
	t.must(first.AckCumulative(t.receiveMany(first, 10)[4]), "acknowledging up to the 5th")
	first.Close()
	t.expectOnly(t.consumer(options), producer, numbered(5, 10)...)
}

func ackBatchIndex(t *trial) {
	options := earliest(pulsar.Shared)
	options.EnableBatchIndexAcknowledgment = true
	first := t.consumer(options)
	producer := t.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: 10 * time.Second})
	messages := []*pulsar.ProducerMessage{}
	for _, text := range numbered(0, 10) {
		messages = append(messages, &pulsar.ProducerMessage{Payload: []byte(text)})
	}
	t.sendTogether(producer, messages)
	rest := []string{}
	for number, message := range t.receiveMany(first, 10) {
		t.ensure(message.ID().BatchSize() == 10, "the batch has %d messages", message.ID().BatchSize())
		if number%2 == 1 {
			t.ack(first, message)
		} else {
			rest = append(rest, string(message.Payload()))
		}
	}
	first.Close()
	second := t.consumer(options)
	t.expectOnly(second, producer, rest...)
}

// retrying gives the options of a Shared subscription that gives messages back after 100 ms.
func retrying() pulsar.ConsumerOptions {
	exact := int64(0)
	options := earliest(pulsar.Shared)
	options.NackRedeliveryDelay = 100 * time.Millisecond
	options.NackPrecisionBit = &exact
	return options
}

func nack(t *trial) {
	consumer := t.consumer(retrying())
	t.sendTexts(t.producer(alone), "again")
	for count := range uint32(3) {
		message := t.receive(consumer)
		t.ensure(string(message.Payload()) == "again", "got %s", message.Payload())
		t.ensure(message.RedeliveryCount() == count, "redelivery count %d instead of %d", message.RedeliveryCount(), count)
		if count < 2 {
			consumer.Nack(message)
		} else {
			t.ack(consumer, message)
		}
	}
	t.receiveNothing(consumer)
}

func deadLetter(t *trial) {
	letters := earliest(pulsar.Shared)
	letters.Topic = t.topic + "-dead"
	dead := t.consumer(letters)
	options := retrying()
	options.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: letters.Topic}
	consumer := t.consumer(options)
	sent := &pulsar.ProducerMessage{Payload: []byte("poison"), Key: "key", Properties: map[string]string{"name": "value"}}
	t.send(t.producer(alone), sent)
	for count := range uint32(3) {
		message := t.receive(consumer)
		t.ensure(message.RedeliveryCount() == count, "redelivery count %d instead of %d", message.RedeliveryCount(), count)
		consumer.Nack(message)
	}
	letter := t.receive(dead)
	same := string(letter.Payload()) == "poison" && letter.Key() == "key" && letter.Properties()["name"] == "value"
	t.ensure(same, "the letter is %q with key %q and %v", letter.Payload(), letter.Key(), letter.Properties())
	t.ack(dead, letter)
	t.receiveNothing(consumer)
}

func retryLetter(t *trial) {
	options := earliest(pulsar.Shared)
	options.AckWithResponse = false // the client acknowledges where it reads answers: it would wait for itself
	options.RetryEnable = true
	options.DLQ = &pulsar.DLQPolicy{
		MaxDeliveries:    3,
		RetryLetterTopic: t.topic + "-retry",
		DeadLetterTopic:  t.topic + "-dead",
	}
	consumer := t.consumer(options)
	properties := map[string]string{"name": "value"}
	t.send(t.producer(alone), &pulsar.ProducerMessage{Payload: []byte("later"), Properties: properties})
	first := t.receive(consumer)
	t.ensure(first.Topic() == t.topic, "the message came from %s", first.Topic())
	t.ensure(maps.Equal(first.Properties(), properties), "the message came with %v", first.Properties())
	consumer.ReconsumeLater(first, time.Second) // comes up to a tick of delayed delivery, 1 s, earlier
	second := t.receive(consumer)
	t.ensure(second.Topic() == t.topic+"-retry", "the message came again from %s", second.Topic())
	t.ensure(string(second.Payload()) == "later", "the message came again as %q", second.Payload())
	marks := second.Properties()
	marked := marks["name"] == "value" && marks[pulsar.SysPropertyReconsumeTimes] == "1" &&
		marks[pulsar.SysPropertyDelayTime] == "1000" &&
		marks[pulsar.SysPropertyRealTopic] == t.topic && marks[pulsar.PropertyOriginMessageID] != ""
	t.ensure(marked, "the message came again marked as %v", marks)
	t.ack(consumer, second)
}

func delayed(t *trial) {
	consumer := t.consumer(earliest(pulsar.Shared))
	producer := t.producer(alone)
	sent := time.Now()
	t.send(producer, &pulsar.ProducerMessage{Payload: []byte("delayed"), DeliverAfter: 2 * time.Second})
	t.sendTexts(producer, "behind")
	t.expectTexts(consumer, "behind", "delayed")
	took := time.Since(sent)
	held := took > 1500*time.Millisecond && took < 10*time.Second
	t.ensure(held, "a message delayed by 2 s came after %s", took)
}
