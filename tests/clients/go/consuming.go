package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/spaolacci/murmur3"
)

func initialPosition(t *trial) {
	producer := t.producer(alone)
	t.sendTexts(producer, numbered(0, 5)...)
	options := earliest(pulsar.Exclusive)
	first := t.consumer(options)
	options.SubscriptionName = "latest"
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	latest := t.consumer(options)
	t.sendTexts(producer, numbered(5, 10)...)
	t.expectTexts(first, numbered(0, 10)...)
	t.expectTexts(latest, numbered(5, 10)...)
}

func exclusive(t *trial) {
	options := earliest(pulsar.Exclusive)
	first := t.consumer(options)
	_, err := t.tryConsumer(options)
	t.refused(err, "a second Exclusive consumer", "ConsumerBusy")
	first.Close()
	second := t.consumer(options)
	t.expectOnly(second, t.producer(alone))
}

func failover(t *trial) {
	options := earliest(pulsar.Failover)
	options.Name = "a"
	first := t.consumer(options)
	options.Name = "b"
	second := t.consumer(options)
	producer := t.producer(alone)
	t.sendTexts(producer, numbered(0, 20)...)
	active, message := t.receiveEither(first, second, 0)
	messages := append([]pulsar.Message{message}, t.receiveMany(active, 19)...)
	t.ensure(slices.Equal(texts(messages), numbered(0, 20)), "the active consumer got %v", texts(messages))
	t.ack(active, messages[:10]...)
	other := second
	if active == second {
		other = first
	}
	t.receiveNothing(other)
	active.Close()
	t.sendTexts(producer, numbered(20, 25)...)
	t.expectTexts(other, numbered(10, 25)...)
}

func shared(t *trial) {
	first, second := t.consumer(earliest(pulsar.Shared)), t.consumer(earliest(pulsar.Shared))
	t.sendTexts(t.producer(alone), numbered(0, 40)...)
	got := map[pulsar.Consumer][]pulsar.Message{}
	all := []pulsar.Message{}
	for range 40 {
		consumer, message := t.receiveEither(first, second, len(all))
		got[consumer] = append(got[consumer], message)
		all = append(all, message)
	}
	t.ensure(len(got) == 2, "one of two consumers got all messages")
	received := slices.Sorted(slices.Values(texts(all)))
	t.ensure(slices.Equal(received, slices.Sorted(slices.Values(numbered(0, 40)))), "together they got %v", received)
	leaving, staying := first, second
	if len(got[second]) > len(got[first]) {
		leaving, staying = second, first
	}
	t.ack(staying, got[staying]...)
	kept := len(got[leaving]) - 5
	t.ack(leaving, got[leaving][:kept]...)
	leaving.Close()
	again := t.receiveMany(staying, 5)
	t.ensure(slices.Equal(slices.Sorted(slices.Values(texts(again))),
		slices.Sorted(slices.Values(texts(got[leaving][kept:])))),
		"got %v again instead of %v", texts(again), texts(got[leaving][kept:]))
	t.ack(staying, again...)
	t.receiveNothing(staying)
}

func sharedTurns(t *trial) {
	first, second := t.consumer(earliest(pulsar.Shared)), t.consumer(earliest(pulsar.Shared))
	producer := t.producer(alone)
	sent := make(chan error, 1)
	go func() {
		for _, text := range numbered(0, 100) {
			if _, err := producer.Send(t.ctx, &pulsar.ProducerMessage{Payload: []byte(text)}); err != nil {
				sent <- err
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		sent <- nil
	}()
	count := map[pulsar.Consumer]int{}
	seen := map[string]bool{}
	for len(seen) < 100 {
		consumer, message := t.receiveEither(first, second, len(seen))
		t.ack(consumer, message)
		count[consumer]++
		seen[string(message.Payload())] = true
	}
	t.must(<-sent, "sending")
	t.ensure(count[first]+count[second] == 100, "100 messages came as %d", count[first]+count[second])
	t.ensure(count[first] >= 30 && count[second] >= 30, "100 messages went %d to %d", count[first], count[second])
}

func keyShared(t *trial) {
	first, second := t.consumer(earliest(pulsar.KeyShared)), t.consumer(earliest(pulsar.KeyShared))
	producer := t.producer(alone)
	home, turn := map[string]pulsar.Consumer{}, map[string]int{}
	send := func(round int) {
		for number := range 20 {
			t.send(producer, &pulsar.ProducerMessage{
				Payload: []byte(fmt.Sprint(round)), Key: fmt.Sprintf("key-%d", number)})
		}
	}
	take := func(consumer pulsar.Consumer, message pulsar.Message) {
		key := message.Key()
		t.ensure(string(message.Payload()) == fmt.Sprint(turn[key]),
			"message %s of %s came where %d was next", message.Payload(), key, turn[key])
		turn[key]++
		t.ack(consumer, message)
	}
	for round := range 5 {
		send(round)
	}
	for number := range 100 {
		consumer, message := t.receiveEither(first, second, number)
		if held, known := home[message.Key()]; known {
			t.ensure(held == consumer, "%s went to both consumers", message.Key())
		}
		home[message.Key()] = consumer
		take(consumer, message)
	}
	count := map[pulsar.Consumer]int{}
	for _, consumer := range home {
		count[consumer]++
	}
	t.ensure(len(home) == 20 && len(count) == 2, "%d keys went to %d consumers", len(home), len(count))
	first.Close()
	send(5)
	for _, message := range t.receiveMany(second, 20) {
		take(second, message)
	}
	for key, number := range turn {
		t.ensure(number == 6, "%s came %d times instead of 6", key, number)
	}
}

func stickyRanges(t *trial) {
	const slots, half = 65536, 32768
	sticky := func(first, last int) (pulsar.Consumer, error) {
		policy, err := pulsar.NewKeySharedPolicySticky([]int{first, last})
		t.must(err, "describing slots")
		options := earliest(pulsar.KeyShared)
		options.KeySharedPolicy = policy
		return t.tryConsumer(options)
	}
	low, err := sticky(0, half-1)
	t.must(err, "subscribing to the lower slots")
	high, err := sticky(half, slots-1)
	t.must(err, "subscribing to the upper slots")
	_, err = sticky(0, 100)
	t.refused(err, "a consumer of slots in use", "ConsumerAssignError")
	producer := t.producer(alone)
	for number := range 50 {
		t.send(producer, &pulsar.ProducerMessage{Payload: []byte("x"), Key: fmt.Sprintf("key-%d", number)})
	}
	count := map[pulsar.Consumer]int{}
	for number := range 50 {
		consumer, message := t.receiveEither(low, high, number)
		slot := int(murmur3.Sum32([]byte(message.Key())) % slots)
		t.ensure((consumer == low) == (slot < half), "%s of slot %d went to the wrong consumer", message.Key(), slot)
		count[consumer]++
		t.ack(consumer, message)
	}
	t.ensure(len(count) == 2, "50 keys went to one consumer")
}

func unsubscribe(t *trial) {
	producer := t.producer(alone)
	t.sendTexts(producer, numbered(0, 5)...)
	first := t.consumer(earliest(pulsar.Exclusive))
	t.expectTexts(first, numbered(0, 2)...)
	t.must(first.Unsubscribe(), "unsubscribing")
	first.Close()
	options := earliest(pulsar.Exclusive)
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	second := t.consumer(options)
	t.sendTexts(producer, numbered(5, 10)...)
	t.expectOnly(second, producer, numbered(5, 10)...)
}

func multiTopics(t *trial) {
	options := earliest(pulsar.Exclusive)
	for _, suffix := range []string{"-a", "-b", "-c"} {
		options.Topics = append(options.Topics, t.topic+suffix)
	}
	consumer := t.consumer(options)
	for _, topic := range options.Topics {
		producer := t.producer(pulsar.ProducerOptions{Topic: topic})
		t.sendTexts(producer, slices.Repeat([]string{topic}, 10)...)
	}
	t.expectTopics(consumer, options.Topics...)
}

func pattern(t *trial) {
	options := earliest(pulsar.Exclusive)
	options.TopicsPattern = "persistent://public/default/" + regexp.QuoteMeta(t.prefix+"-"+t.name) + "-.*"
	options.AutoDiscoveryPeriod = time.Second
	send := func(topic string) {
		producer := t.producer(pulsar.ProducerOptions{Topic: topic})
		t.sendTexts(producer, slices.Repeat([]string{topic}, 10)...)
	}
	send(t.topic + "-a")
	send(t.topic + "-b")
	consumer := t.consumer(options)
	t.expectTopics(consumer, t.topic+"-a", t.topic+"-b")
	send(t.topic + "-c")
	t.expectTopics(consumer, t.topic+"-c")
}

// expectTopics receives 10 messages of each topic, which hold its name.
func (t *trial) expectTopics(consumer pulsar.Consumer, topics ...string) {
	count := map[string]int{}
	for _, message := range t.receiveMany(consumer, 10*len(topics)) {
		t.ensure(message.Topic() == string(message.Payload()),
			"a message of %s says it is of %s", message.Payload(), message.Topic())
		count[message.Topic()]++
		t.ack(consumer, message)
	}
	for _, topic := range topics {
		t.ensure(count[topic] == 10, "got messages by topic %v, not 10 of %s", count, topic)
	}
}

func queueSizeZero(t *trial) {
	options := earliest(pulsar.Exclusive)
	options.EnableZeroQueueConsumer = true
	consumer := t.consumer(options)
	t.sendTexts(t.producer(alone), numbered(0, 5)...)
	for number := range 5 {
		t.expectTexts(consumer, "message-"+strconv.Itoa(number))
	}
}

func batchReceive(t *trial) {
	t.lacks("no batch receive in this client")
}
