// peerload loads one server: Magnetar, NATS JetStream or Apache Kafka, all with the same window, pacing and time stamps.
//
// It prints one JSON object per phase ("produce", "consume"), latencies in milliseconds.
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync/atomic"
	"time"
)

type options struct {
	addr, name, ack                     string
	n, size, batch, window, rate, queue int
	flush1, share                       bool
}

// A server to load. produce and consume call next, acked and got.
type peer interface {
	// create makes the topic or stream; it waits for a server that is starting.
	create(o *options)
	produce(o *options, r *run)
	consume(o *options, ready chan<- struct{}, c *tally)
}

const patience = 2 * time.Minute // for a server to start

func die(a ...any) { fmt.Fprintln(os.Stderr, a...); os.Exit(2) }
func must(err error) {
	if err != nil {
		die(err)
	}
}

// eventually calls try until it succeeds; a server that is starting refuses at first.
func eventually(try func() error) {
	until := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			die(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// run is one producer: at most window unacknowledged sends, each stamped when it is made.
type run struct {
	o     *options
	sent  []int64
	lat   []int64
	sem   chan struct{}
	done  chan struct{}
	pay   []byte
	start time.Time
}

func newRun(o *options) *run {
	r := &run{o: o, sent: make([]int64, o.n), lat: make([]int64, 0, o.n), sem: make(chan struct{}, o.window), done: make(chan struct{}), pay: make([]byte, o.size)}
	for i := range r.pay {
		r.pay[i] = byte(i * 7)
	}
	r.start = time.Now()
	return r
}

// next waits for the send's time and for room in the window; flush is called before it sleeps.
func (r *run) next(i int, flush func()) {
	if r.o.rate > 0 {
		if x := time.Until(r.start.Add(time.Duration(float64(i) / float64(r.o.rate) * 1e9))); x > 0 {
			flush()
			time.Sleep(x)
		}
	}
	select {
	case r.sem <- struct{}{}:
	default:
		flush()
		r.sem <- struct{}{}
	}
	now := time.Now().UnixNano()
	binary.BigEndian.PutUint64(r.pay, uint64(now))
	atomic.StoreInt64(&r.sent[i], now)
}

// acked is called by one goroutine at a time.
func (r *run) acked(i int) {
	r.lat = append(r.lat, time.Now().UnixNano()-atomic.LoadInt64(&r.sent[i]))
	<-r.sem
	if len(r.lat) == r.o.n {
		close(r.done)
	}
}

type tally struct {
	want, n int
	lat     []int64
	start   time.Time
	end     time.Time
}

// got says whether this was the last one wanted.
func (t *tally) got(p []byte) bool {
	now := time.Now()
	if t.n == 0 {
		t.start = now
	}
	t.n++
	t.lat = append(t.lat, now.UnixNano()-int64(binary.BigEndian.Uint64(p)))
	t.end = now
	return t.n >= t.want
}

func percentile(l []int64, p float64) float64 {
	if len(l) == 0 {
		return 0
	}
	return float64(l[int(float64(len(l)-1)*p)]) / 1e6
}

func report(phase string, messages int, seconds float64, lat []int64) {
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	line, err := json.Marshal(map[string]any{"phase": phase, "messages": messages, "seconds": seconds,
		"p50": percentile(lat, .5), "p99": percentile(lat, .99), "p999": percentile(lat, .999)})
	must(err)
	fmt.Println(string(line))
}

func main() {
	o := &options{}
	kind := flag.String("peer", "magnetar", "magnetar|nats|kafka")
	mode := flag.String("mode", "produce", "produce|both|backlog")
	flag.StringVar(&o.addr, "addr", "127.0.0.1:6650", "host:port")
	flag.StringVar(&o.name, "name", fmt.Sprintf("peerload-%d", time.Now().UnixNano()), "topic or stream, made if it is not there")
	flag.IntVar(&o.n, "n", 100000, "sends (batches with -batch)")
	flag.IntVar(&o.size, "size", 1024, "bytes of a message, at least 8")
	flag.IntVar(&o.batch, "batch", 1, "messages per send: atomic batches of NATS")
	flag.IntVar(&o.window, "window", 1000, "sends in flight")
	flag.IntVar(&o.rate, "rate", 0, "sends per second, 0: as fast as acknowledgements come")
	flag.IntVar(&o.queue, "queue", 1000, "messages that the consumer asks for ahead")
	flag.StringVar(&o.ack, "ack", "explicit", "explicit: each message; all: each hundredth for all before it")
	flag.BoolVar(&o.flush1, "flush1", false, "kafka: topic with flush.messages=1")
	flag.BoolVar(&o.share, "share", false, "kafka: consume as a share group, one acknowledgement per record")
	flag.Parse()
	p := map[string]peer{"magnetar": magnetar{}, "nats": natsRaw{}, "kafka": kafka{}}[*kind]
	if p == nil {
		die("no such peer:", *kind)
	}
	p.create(o)
	produce := func() {
		r := newRun(o)
		p.produce(o, r)
		<-r.done
		report("produce", o.n*o.batch, time.Since(r.start).Seconds(), r.lat)
	}
	consume := func(ready chan<- struct{}) {
		t := &tally{want: o.n * o.batch}
		p.consume(o, ready, t)
		report("consume", t.n, t.end.Sub(t.start).Seconds(), t.lat)
	}
	switch *mode {
	case "produce":
		produce()
	case "both":
		ready, fin := make(chan struct{}), make(chan struct{})
		go func() { consume(ready); close(fin) }()
		<-ready
		produce()
		<-fin
	case "backlog":
		produce()
		consume(nil)
	default:
		die("no such mode:", *mode)
	}
}
