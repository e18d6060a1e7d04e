package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
)

func partitioned(t *trial) {
	t.ask("partition", t.topic, "3")
	consumer := t.consumer(earliest(pulsar.Exclusive))
	producer := t.producer(pulsar.ProducerOptions{})
	for number := range 50 {
		t.send(producer, &pulsar.ProducerMessage{
			Payload: []byte(fmt.Sprint(number / 10)), Key: fmt.Sprintf("key-%d", number%10)})
	}
	home, turn := map[string]string{}, map[string]int{}
	for _, message := range t.receiveMany(consumer, 50) {
		key := message.Key()
		expected := fmt.Sprint(turn[key])
		t.ensure(string(message.Payload()) == expected,
			"message %s of %s came where %s was next", message.Payload(), key, expected)
		turn[key]++
		if home[key] == "" {
			home[key] = message.Topic()
		}
		t.ensure(home[key] == message.Topic(), "%s is in %s and %s", key, home[key], message.Topic())
		t.ack(consumer, message)
	}
	t.ensure(len(turn) == 10, "got %d keys instead of 10", len(turn))
	t.sendTexts(t.producer(alone), numbered(0, 60)...)
	t.expectPartitions(consumer, numbered(0, 60), 3)
}

func partitionsGrow(t *trial) {
	t.ask("partition", t.topic, "2")
	first := t.producer(alone)
	t.sendTexts(first, numbered(0, 10)...)
	first.Close()
	options := earliest(pulsar.Exclusive)
	earlier := t.consumer(options)
	t.expectPartitions(earlier, numbered(0, 10), 2)
	earlier.Close()
	t.ask("partition", t.topic, "4")
	later := t.consumer(options)
	t.sendTexts(t.producer(alone), numbered(10, 50)...)
	t.expectPartitions(later, numbered(10, 50), 4)
}

// expectPartitions receives the texts, each once and in any order, and checks the number of their partitions.
func (t *trial) expectPartitions(consumer pulsar.Consumer, expected []string, partitions int) {
	messages := t.receiveMany(consumer, len(expected))
	got := texts(messages)
	slices.Sort(got)
	wanted := slices.Sorted(slices.Values(expected))
	t.ensure(slices.Equal(got, wanted), "got %v instead of %v", got, wanted)
	count := map[string]int{}
	for _, message := range messages {
		count[message.Topic()]++
	}
	t.ensure(len(count) == partitions, "messages came from %v instead of from %d partitions", count, partitions)
	t.ack(consumer, messages...)
}

func nonPersistent(t *trial) {
	t.topic = "non-persistent://public/default/" + t.prefix + "-" + t.name
	consumer := t.consumer(pulsar.ConsumerOptions{SubscriptionName: "subscription"})
	t.sendTexts(t.producer(pulsar.ProducerOptions{}), numbered(0, 10)...)
	t.expectTexts(consumer, numbered(0, 10)...)
}

func deduplication(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	t.ask("deduplicate", t.topic)
	for _, first := range []int64{0, 5} {
		producer := t.producer(pulsar.ProducerOptions{Name: "the-name", DisableBatching: true})
		for number := first; number < first+10; number++ {
			t.send(producer, &pulsar.ProducerMessage{
				Payload: []byte(fmt.Sprintf("message-%d", number)), SequenceID: &number})
		}
		producer.Close()
	}
	t.expectOnly(consumer, t.producer(alone), numbered(0, 15)...)
}

func endOfTopic(t *trial) {
	options := earliest(pulsar.Exclusive)
	options.AckWithResponse = false // the client may close the connection before it reads the last answer
	consumer := t.consumer(options)
	producer := t.producer(alone)
	t.sendTexts(producer, numbered(0, 5)...)
	t.ask("terminate", t.topic)
	t.wait(quiet) // the client forgets a send that meets the closing of its producer
	_, err := producer.Send(t.ctx, &pulsar.ProducerMessage{Payload: []byte("late")})
	t.refused(err, "a send after the topic's end", "TopicTerminated", "ProducerClosed")
	_, err = t.tryProducer(pulsar.ProducerOptions{})
	t.refused(err, "a new producer after the topic's end", "TopicTerminated")
	t.expectTexts(consumer, numbered(0, 5)...)
	t.lacks("client: it takes the command of the topic's end for an invalid one, and closes the connection")
}

// watcher is an interceptor of both sides.
type watcher struct {
	mutex sync.Mutex
	saw   map[string][]string
}

func (w *watcher) note(event, what string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.saw[event] = append(w.saw[event], what)
}

func (w *watcher) BeforeSend(_ pulsar.Producer, message *pulsar.ProducerMessage) {
	message.Properties = map[string]string{"by": "interceptor"}
	w.note("send", string(message.Payload))
}

func (w *watcher) OnSendAcknowledgement(_ pulsar.Producer, message *pulsar.ProducerMessage, _ pulsar.MessageID) {
	w.note("stored", string(message.Payload))
}

func (w *watcher) BeforeConsume(message pulsar.ConsumerMessage) {
	w.note("consume", string(message.Payload()))
}

func (w *watcher) OnAcknowledge(_ pulsar.Consumer, id pulsar.MessageID) {
	w.note("acknowledge", id.String())
}

func (w *watcher) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}

func interceptors(t *trial) {
	seen := &watcher{saw: map[string][]string{}}
	options := earliest(pulsar.Exclusive)
	options.Interceptors = pulsar.ConsumerInterceptors{seen}
	consumer := t.consumer(options)
	producer := t.producer(pulsar.ProducerOptions{Interceptors: pulsar.ProducerInterceptors{seen}})
	t.sendTexts(producer, numbered(0, 5)...)
	ids := []string{}
	for _, message := range t.expectTexts(consumer, numbered(0, 5)...) {
		ids = append(ids, message.ID().String())
		t.ensure(message.Properties()["by"] == "interceptor", "the interceptor's property did not come")
	}
	producer.Close() // after it every answer to a send has been seen
	seen.mutex.Lock()
	defer seen.mutex.Unlock()
	for _, event := range []string{"send", "stored", "consume"} {
		t.ensure(slices.Equal(seen.saw[event], numbered(0, 5)), "at %s it saw %v", event, seen.saw[event])
	}
	t.ensure(slices.Equal(seen.saw["acknowledge"], ids), "at acknowledge it saw %v", seen.saw["acknowledge"])
}
