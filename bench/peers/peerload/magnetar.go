package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"
)

// magnetar speaks Pulsar's binary protocol itself, so that the broker is measured and not a client.
type magnetar struct{}

// Types of commands; the field that holds a command has the number of its type.
const (
	cmdConnect, cmdConnected, cmdSubscribe, cmdProducer, cmdSend, cmdSendReceipt  = 2, 3, 4, 5, 6, 7
	cmdMessage, cmdAck, cmdFlow, cmdSuccess, cmdProducerSuccess, cmdPing, cmdPong = 9, 10, 11, 13, 17, 18, 19
	cmdLookup, cmdLookupResponse                                                  = 23, 24
)

const (
	frameBytesMax = 6 << 20
	exclusive     = 0
	shared        = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func uvarint(b []byte, x uint64) []byte           { return binary.AppendUvarint(b, x) }
func number(b []byte, field int, x uint64) []byte { return uvarint(uvarint(b, uint64(field)<<3), x) }
func bytesOf(b []byte, field int, x []byte) []byte {
	return append(uvarint(uvarint(b, uint64(field)<<3|2), uint64(len(x))), x...)
}
func stringOf(b []byte, field int, x string) []byte { return bytesOf(b, field, []byte(x)) }
func frame(kind int, body []byte) []byte            { return frameOf(nil, kind, body) }

// frameOf appends the frame of a command without payload.
func frameOf(b []byte, kind int, body []byte) []byte {
	command := bytesOf(number(nil, 1, uint64(kind)), kind, body)
	b = binary.BigEndian.AppendUint32(b, uint32(len(command)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(len(command)))
	return append(b, command...)
}

// sendFrame appends a Send of one message with its metadata and checksum.
func sendFrame(b []byte, sequence uint64, metadata, payload []byte) []byte {
	command := number(number(number(nil, 1, 1), 2, sequence), 3, 1)
	command = bytesOf(number(nil, 1, cmdSend), cmdSend, command)
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(command)+2+4+4+len(metadata)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(command)))
	b = append(append(b, command...), 0x0e, 0x01)
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(metadata)))
	b = append(append(b, metadata...), payload...)
	binary.BigEndian.PutUint32(b[at:], crc32.Checksum(b[at+4:], castagnoli))
	return b
}

// eachField calls f with every number or byte string of a protobuf message.
func eachField(b []byte, f func(field int, x uint64, s []byte)) {
	for len(b) > 0 {
		tag, k := binary.Uvarint(b)
		b = b[k:]
		switch tag & 7 {
		case 0:
			x, k := binary.Uvarint(b)
			b = b[k:]
			f(int(tag>>3), x, nil)
		case 2:
			size, k := binary.Uvarint(b)
			f(int(tag>>3), 0, b[k:k+int(size)])
			b = b[k+int(size):]
		case 1:
			b = b[8:]
		case 5:
			b = b[4:]
		}
	}
}

type line struct {
	c   net.Conn
	r   *bufio.Reader
	buf []byte
}

// next returns the next command but pings, and its payload; they live until the following call.
func (l *line) next() (kind int, command, payload []byte, err error) {
	for {
		var head [8]byte
		if _, err = io.ReadFull(l.r, head[:]); err != nil {
			return
		}
		total, size := int(binary.BigEndian.Uint32(head[:]))-4, int(binary.BigEndian.Uint32(head[4:]))
		if size > total || total > frameBytesMax {
			return 0, nil, nil, fmt.Errorf("a frame of %d bytes with a command of %d", total, size)
		}
		if cap(l.buf) < total {
			l.buf = make([]byte, total)
		}
		l.buf = l.buf[:total]
		if _, err = io.ReadFull(l.r, l.buf); err != nil {
			return
		}
		eachField(l.buf[:size], func(field int, x uint64, s []byte) {
			if field == 1 {
				kind = int(x)
			} else {
				command = s
			}
		})
		if kind != cmdPing {
			return kind, command, l.buf[size:], nil
		}
		l.c.Write(frame(cmdPong, nil))
	}
}

// ask writes a command and expects an answer of a kind.
func (l *line) ask(kind int, body []byte, answer int) error {
	if _, err := l.c.Write(frame(kind, body)); err != nil {
		return err
	}
	got, command, _, err := l.next()
	if err == nil && got != answer {
		err = fmt.Errorf("command %d was answered by %d: %q", kind, got, command)
	}
	return err
}

func (magnetar) topic(o *options) string { return "persistent://public/default/" + o.name }

func (m magnetar) dial(o *options) (*line, error) {
	c, err := net.Dial("tcp", o.addr)
	if err != nil {
		return nil, err
	}
	l := &line{c: c, r: bufio.NewReaderSize(c, 1<<20)}
	err = errors.Join(l.ask(cmdConnect, number(stringOf(nil, 1, "peerload"), 4, 19), cmdConnected))
	if err == nil {
		err = l.ask(cmdLookup, number(number(stringOf(nil, 1, m.topic(o)), 2, 1), 3, 0), cmdLookupResponse)
	}
	if err != nil {
		c.Close()
	}
	return l, err
}

// create waits until the broker answers; topics come with their first producer or consumer.
func (m magnetar) create(o *options) {
	eventually(func() error {
		l, err := m.dial(o)
		if err == nil {
			l.c.Close()
		}
		return err
	})
}

func (m magnetar) produce(o *options, r *run) {
	name := fmt.Sprintf("peerload-%d", time.Now().UnixNano())
	var l *line
	eventually(func() (err error) {
		if l, err = m.dial(o); err == nil {
			err = l.ask(cmdProducer, stringOf(number(number(stringOf(nil, 1, m.topic(o)), 2, 1), 3, 2), 4, name), cmdProducerSuccess)
		}
		return
	})
	r.start = time.Now()
	go func() {
		for i := 0; i < o.n; i++ {
			kind, command, _, err := l.next()
			must(err)
			if kind != cmdSendReceipt {
				die("not acknowledged:", kind, string(command))
			}
			eachField(command, func(field int, x uint64, _ []byte) {
				if field == 2 {
					r.acked(int(x))
				}
			})
		}
	}()
	w := bufio.NewWriterSize(l.c, 1<<18)
	flush := func() { w.Flush() }
	var b, metadata []byte
	for i := 0; i < o.n; i++ {
		r.next(i, flush)
		metadata = number(number(stringOf(metadata[:0], 1, name), 2, uint64(i)), 3, uint64(time.Now().UnixMilli()))
		b = sendFrame(b[:0], uint64(i), metadata, r.pay)
		if w.Available() < len(b) { // whole frames only: the reader answers pings on the same connection
			w.Flush()
		}
		w.Write(b)
	}
	w.Flush()
	<-r.done
	l.c.Close()
}

// consume grants as many permits as messages came whenever that is half of the queue. Acknowledgements of each message come
// from a Shared subscription, cumulative ones from an Exclusive one.
func (m magnetar) consume(o *options, ready chan<- struct{}, t *tally) {
	l, err := m.dial(o)
	must(err)
	kind := uint64(shared)
	if o.ack == "all" {
		kind = exclusive
	}
	body := number(number(number(stringOf(stringOf(nil, 1, m.topic(o)), 2, "sub"), 3, kind), 4, 1), 5, 2)
	must(l.ask(cmdSubscribe, number(body, 13, 1), cmdSuccess))
	flow := func(permits int) []byte { return frame(cmdFlow, number(number(nil, 1, 1), 2, uint64(permits))) }
	if ready != nil {
		close(ready)
	}
	l.c.Write(flow(o.queue))
	w := bufio.NewWriterSize(l.c, 1<<16)
	var b, ack []byte
	since := 0
	for {
		kind, command, payload, err := l.next()
		must(err)
		if kind != cmdMessage {
			die("not a message:", kind, string(command))
		}
		if payload[0] == 0x0e && payload[1] == 0x01 {
			payload = payload[6:]
		}
		end := t.got(payload[4+binary.BigEndian.Uint32(payload):])
		since++
		if o.ack != "all" || t.n%100 == 0 || end {
			cumulative := uint64(0)
			if o.ack == "all" {
				cumulative = 1
			}
			ack = number(number(ack[:0], 1, 1), 2, cumulative)
			eachField(command, func(field int, _ uint64, id []byte) {
				if field == 2 {
					ack = bytesOf(ack, 3, id)
				}
			})
			b = frameOf(b[:0], cmdAck, ack)
			w.Write(b)
		}
		if since >= o.queue/2 {
			w.Write(flow(since))
			since = 0
		}
		if l.r.Buffered() < 8 || end {
			w.Flush()
		}
		if end {
			break
		}
	}
	time.Sleep(50 * time.Millisecond) // acknowledgements have no answer
	l.c.Close()
}
