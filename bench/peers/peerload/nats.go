package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsCreate makes a stream of one subject in files, one replica, and waits for a server that is still starting.
func natsCreate(o *options) {
	var nc *nats.Conn
	eventually(func() (err error) {
		nc, err = nats.Connect("nats://" + o.addr)
		return
	})
	defer nc.Close()
	conf, err := json.Marshal(map[string]any{"name": o.name, "subjects": []string{o.name}, "storage": "file", "num_replicas": 1, "retention": "limits", "discard": "old",
		"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "allow_atomic": o.batch > 1})
	must(err)
	eventually(func() error {
		m, err := nc.Request("$JS.API.STREAM.CREATE."+o.name, conf, 2*time.Second)
		if err == nil && bytes.Contains(m.Data, []byte(`"error"`)) {
			err = errors.New(string(m.Data))
		}
		return err
	})
}

func natsConsumer(o *options) {
	nc, err := nats.Connect("nats://" + o.addr)
	must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(err)
	policy := jetstream.AckExplicitPolicy
	if o.ack == "all" {
		policy = jetstream.AckAllPolicy
	}
	_, err = js.CreateConsumer(context.Background(), o.name, jetstream.ConsumerConfig{Durable: "sub", AckPolicy: policy, MaxAckPending: max(1000, 2*o.queue), DeliverPolicy: jetstream.DeliverAllPolicy})
	must(err)
}

// natsRaw speaks the text protocol itself, so that the server is measured and not a client.
type natsRaw struct{}

func (natsRaw) create(o *options) { natsCreate(o) }

type natsLine struct {
	c  net.Conn
	r  *bufio.Reader
	mu sync.Mutex
}

func natsDial(o *options) *natsLine {
	c, err := net.Dial("tcp", o.addr)
	must(err)
	l := &natsLine{c: c, r: bufio.NewReaderSize(c, 1<<20)}
	_, err = l.r.ReadSlice('\n') // INFO
	must(err)
	l.write([]byte("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1,\"lang\":\"raw\",\"version\":\"0\"}\r\n"))
	return l
}

func (l *natsLine) write(b []byte) { l.mu.Lock(); l.c.Write(b); l.mu.Unlock() }

// next returns subject, reply and body (with its headers, if it has any) of the next message; they live until the following call.
func (l *natsLine) next(buf *[]byte) (subject, reply, body []byte, headers int) {
	for {
		line, err := l.r.ReadSlice('\n')
		must(err)
		if bytes.HasPrefix(line, []byte("PING")) {
			l.write([]byte("PONG\r\n"))
			continue
		}
		h := bytes.HasPrefix(line, []byte("HMSG"))
		if !h && !bytes.HasPrefix(line, []byte("MSG")) {
			if bytes.HasPrefix(line, []byte("-ERR")) {
				die(string(line))
			}
			continue
		}
		*buf = append((*buf)[:0], line[:len(line)-2]...)
		f := bytes.Split(*buf, []byte{' '})
		last := len(f) - 1
		size, _ := strconv.Atoi(string(f[last]))
		if h {
			last--
			headers, _ = strconv.Atoi(string(f[last]))
		}
		if last == 4 {
			reply = f[3]
		}
		p := len(*buf)
		*buf = append(*buf, make([]byte, size+2)...)
		_, err = io.ReadFull(l.r, (*buf)[p:])
		must(err)
		return f[1], reply, (*buf)[p : p+size], headers
	}
}

func (natsRaw) produce(o *options, r *run) {
	l := natsDial(o)
	inbox := fmt.Sprintf("_INBOX.%d", time.Now().UnixNano())
	l.write([]byte("SUB " + inbox + ".> 1\r\nPING\r\n"))
	go func() {
		var buf []byte
		for i := 0; i < o.n; i++ {
			subject, _, body, _ := l.next(&buf)
			if !bytes.HasPrefix(body, []byte(`{"stream"`)) {
				die("not acknowledged:", string(body))
			}
			k, _ := strconv.Atoi(string(subject[len(inbox)+1:]))
			r.acked(k)
		}
	}()
	w := bufio.NewWriterSize(l.c, 1<<18)
	flush := func() { w.Flush() }
	var b []byte
	for i := 0; i < o.n; i++ {
		r.next(i, flush)
		b = b[:0]
		if o.batch == 1 {
			b = append(append(append(append(b, "PUB "...), o.name...), ' '), inbox...)
			b = strconv.AppendInt(append(b, '.'), int64(i), 10)
			b = strconv.AppendInt(append(b, ' '), int64(o.size), 10)
			b = append(append(append(b, "\r\n"...), r.pay...), "\r\n"...)
		}
		for k := 1; o.batch > 1 && k <= o.batch; k++ {
			h := fmt.Sprintf("NATS/1.0\r\nNats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n", i, k)
			reply := ""
			if k == o.batch {
				h += "Nats-Batch-Commit: 1\r\n"
				reply = fmt.Sprintf(" %s.%d", inbox, i)
			}
			h += "\r\n"
			b = fmt.Appendf(b, "HPUB %s%s %d %d\r\n%s", o.name, reply, len(h), len(h)+o.size, h)
			b = append(append(b, r.pay...), "\r\n"...)
		}
		w.Write(b)
	}
	w.Flush()
	<-r.done
	l.c.Close()
}

// consume asks for queue messages and again for what it took whenever that is half of it.
func (natsRaw) consume(o *options, ready chan<- struct{}, t *tally) {
	natsConsumer(o)
	l := natsDial(o)
	inbox := fmt.Sprintf("_INBOX.%d", time.Now().UnixNano())
	l.write([]byte("SUB " + inbox + " 1\r\n"))
	ask := func(n int) []byte {
		j := fmt.Sprintf(`{"batch":%d,"expires":300000000000}`, n)
		return fmt.Appendf(nil, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.sub %s %d\r\n%s\r\n", o.name, inbox, len(j), j)
	}
	if ready != nil {
		close(ready)
	}
	l.write(ask(o.queue))
	w := bufio.NewWriterSize(l.c, 1<<16)
	var buf, b []byte
	since := 0
	for {
		_, reply, body, h := l.next(&buf)
		if reply == nil {
			die("status:", string(body))
		}
		end := t.got(body[h:])
		since++
		if o.ack != "all" || t.n%100 == 0 || end {
			b = append(append(append(b[:0], "PUB "...), reply...), " 4\r\n+ACK\r\n"...)
			w.Write(b)
		}
		if since >= o.queue/2 {
			w.Write(ask(since))
			since = 0
		}
		if l.r.Buffered() < 8 || end {
			w.Flush()
		}
		if end {
			break
		}
	}
	time.Sleep(50 * time.Millisecond)
	l.c.Close()
}
