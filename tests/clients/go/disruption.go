package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	disruptedMessages = 300
	disruptedPause    = 10 * time.Millisecond // between sends, so that disruptions happen among them
	disruptedGap      = 150 * time.Second     // the longest time without a message: a kill waits for all programs
)

func moved(t *trial) {
	failed := disrupt(t, "move", 100, 200)
	t.ensure(len(failed) == 0, "%d sends failed: %v", len(failed), failed)
}

func killed(t *trial) {
	disrupt(t, "kill", 100)
}

// disrupt sends and receives 300 messages and asks for the verb at the given ones; gives the sends that failed.
//
// Every message whose send succeeded has to arrive, in order but for repetitions, and the last 50 have to be sent.
func disrupt(t *trial, verb string, at ...int) map[int]error {
	consumer := t.consumer(pulsar.ConsumerOptions{
		SubscriptionName:            "subscription",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	producer := t.producer(pulsar.ProducerOptions{DisableBatching: true, SendTimeout: 30 * time.Second})
	outcome := make(chan sending, 1)
	go func() { outcome <- sendDisrupted(t, producer, verb, at) }()
	seen := map[int]bool{}
	highest := -1
	for !seen[disruptedMessages-1] {
		ctx, cancel := context.WithTimeout(t.ctx, disruptedGap)
		message, err := consumer.Receive(ctx)
		cancel()
		if timedOut(err) {
			break
		}
		t.must(err, "receiving")
		number, err := strconv.Atoi(string(message.Payload()))
		t.must(err, "reading a number")
		t.ensure(number > highest || seen[number], "message %d came first after message %d", number, highest)
		seen[number] = true
		highest = max(highest, number)
		_ = consumer.Ack(message) // may be lost with the connection; then the message comes again
	}
	sent := <-outcome
	t.must(sent.err, "asking the harness")
	for number := range disruptedMessages {
		_, failed := sent.failed[number]
		t.ensure(seen[number] || failed, "message %d was sent and did not arrive", number)
		t.ensure(!failed || number < disruptedMessages-50, "the send of message %d failed", number)
	}
	return sent.failed
}

// sending is what came of the sends.
type sending struct {
	failed map[int]error
	err    error // of the harness
}

// sendDisrupted asks for the verb aside while it goes on sending; keeps the last 50 until all answers are there.
func sendDisrupted(t *trial, producer pulsar.Producer, verb string, at []int) sending {
	answers := make(chan error, len(at))
	result := sending{failed: map[int]error{}}
	asked := 0
	settle := func() {
		for ; asked > 0; asked-- {
			result.err = firstOf(result.err, <-answers)
		}
	}
	for number := range disruptedMessages {
		for _, each := range at {
			if number == each {
				settle()
				asked++
				go func() {
					_, err := t.harness.ask(t.ctx, verb, t.topic)
					answers <- err
				}()
			}
		}
		if number == disruptedMessages-50 {
			settle()
		}
		message := &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(number))}
		if _, err := producer.Send(t.ctx, message); err != nil {
			result.failed[number] = err
		}
		time.Sleep(disruptedPause)
	}
	return result
}

func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
