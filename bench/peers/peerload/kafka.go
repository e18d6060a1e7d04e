package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka is loaded by franz-go: acks=all, idempotent, one partition, no compression.
type kafka struct{}

func (kafka) client(o *options, more ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(o.addr), kgo.MetadataMinAge(10 * time.Millisecond)}, more...)...)
	must(err)
	return c
}

func (k kafka) create(o *options) {
	c := k.client(o)
	defer c.Close()
	one := "1"
	conf := map[string]*string{}
	if o.flush1 {
		conf["flush.messages"] = &one
	}
	eventually(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, conf, o.name)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
}

func (k kafka) produce(o *options, r *run) {
	opts := []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(o.window + 1), kgo.DefaultProduceTopic(o.name), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	c := k.client(o, opts...)
	// the first request learns of the topic and of the producer's id; it is no part of the measurement
	if o.n > 1 {
		p := make([]byte, 8)
		must(c.ProduceSync(context.Background(), &kgo.Record{Value: p, Key: []byte("warm")}).FirstErr())
	}
	r.start = time.Now()
	var mu sync.Mutex
	for i := 0; i < o.n; i++ {
		r.next(i, func() {})
		c.Produce(context.Background(), &kgo.Record{Value: append([]byte(nil), r.pay...)}, func(_ *kgo.Record, err error) {
			must(err)
			mu.Lock()
			r.acked(i)
			mu.Unlock()
		})
	}
	<-r.done
	c.Close()
}

// consume is a group of one with offsets committed in the background, as Kafka's consumers do it; with -share it is a share group
// that acknowledges every record, which is what Pulsar calls a Shared subscription.
func (k kafka) consume(o *options, ready chan<- struct{}, t *tally) {
	opts := []kgo.Opt{kgo.ConsumeTopics(o.name), kgo.FetchMaxWait(5 * time.Second)}
	if o.share {
		opts = append(opts, kgo.ShareGroup("s-"+o.name), kgo.ShareMaxRecords(int32(o.queue)))
		k.fromStart("s-"+o.name, o)
	} else {
		opts = append(opts, kgo.ConsumerGroup("g-"+o.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	c := k.client(o, opts...)
	if ready != nil {
		// a share group learns what it has to read seconds after it was joined: it is ready when it has a record
		must(c.ProduceSync(context.Background(), &kgo.Record{Topic: o.name, Value: make([]byte, 8), Key: []byte("warm")}).FirstErr())
		for seen := false; !seen; {
			c.PollFetches(context.Background()).EachRecord(func(x *kgo.Record) {
				seen = true
				if o.share {
					x.Ack(kgo.AckAccept)
				}
			})
		}
		close(ready)
	}
	for end := false; !end; {
		f := c.PollFetches(context.Background())
		f.EachError(func(_ string, _ int32, err error) { die(err) })
		f.EachRecord(func(x *kgo.Record) {
			if o.share {
				x.Ack(kgo.AckAccept)
			}
			if string(x.Key) != "warm" && !end {
				end = t.got(x.Value)
			}
		})
	}
	if o.share {
		must(c.FlushAcks(context.Background()))
	} else {
		must(c.CommitUncommittedOffsets(context.Background()))
	}
	c.Close()
}

// fromStart has a share group begin at the first record.
func (k kafka) fromStart(group string, o *options) {
	c := k.client(o)
	defer c.Close()
	earliest := "earliest"
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	x.Name, x.Value = "share.auto.offset.reset", &earliest
	r.Configs = append(r.Configs, x)
	q.Resources = append(q.Resources, r)
	a, err := q.RequestWith(context.Background(), c)
	must(err)
	must(kerr.ErrorForCode(a.Resources[0].ErrorCode))
}
