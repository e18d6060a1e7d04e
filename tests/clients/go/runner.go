package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const closingBound = 5 * time.Second

// setting is what the program was called with.
type setting struct {
	service, prefix, keys string
}

// harness is the other end of standard input and output.
type harness struct {
	reading sync.Mutex
	writing sync.Mutex
	in      *bufio.Reader
	out     io.Writer
}

func newHarness(in io.Reader, out io.Writer) *harness {
	return &harness{in: bufio.NewReader(in), out: out}
}

func (h *harness) say(words ...string) {
	h.writing.Lock()
	defer h.writing.Unlock()
	fmt.Fprintln(h.out, strings.Join(words, "\t"))
}

// ask has the service do something and gives the answer's value, which may be empty.
func (h *harness) ask(ctx context.Context, words ...string) (string, error) {
	h.reading.Lock() // the answer to a question of a scenario that ran out of time comes before this one
	defer h.reading.Unlock()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	h.say(append([]string{"ask"}, words...)...)
	line, err := h.in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("no answer to ask %s: %w", words[0], err)
	}
	verdict, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "\t")
	if verdict != "done" {
		return "", fmt.Errorf("ask %s: %s %s", words[0], verdict, value)
	}
	return value, nil
}

// failure and lacking end a scenario, by panic, in the goroutine that conduct started.
type (
	failure string
	lacking string
)

// conduct runs one scenario with clients of its own; the verdict is pass, fail or lacks, with a reason.
func conduct(chosen scenario, given setting, harness *harness) (string, string) {
	ctx, cancel := context.WithTimeout(context.Background(), chosen.bound)
	defer cancel()
	t := &trial{
		ctx:     ctx,
		setting: given,
		harness: harness,
		name:    chosen.name,
		topic:   "persistent://public/default/" + given.prefix + "-" + chosen.name,
	}
	verdict := make(chan [2]string, 1)
	go func() {
		defer func() {
			switch ended := recover().(type) {
			case nil:
				verdict <- [2]string{"pass", ""}
			case failure:
				verdict <- [2]string{"fail", string(ended)}
			case lacking:
				verdict <- [2]string{"lacks", string(ended)}
			default:
				verdict <- [2]string{"fail", fmt.Sprintf("panic: %v", ended)}
			}
		}()
		t.client = t.newClient()
		chosen.run(t)
	}()
	defer t.close()
	select {
	case told := <-verdict:
		return told[0], told[1]
	case <-ctx.Done():
		return "fail", fmt.Sprintf("not done within %s", chosen.bound)
	}
}

// trial is one run of a scenario. Its methods end the scenario when what they do fails; they are for the
// scenario's own goroutine only.
type trial struct {
	setting
	ctx     context.Context
	harness *harness
	name    string
	topic   string
	client  pulsar.Client

	closing sync.Mutex
	clients []pulsar.Client
}

func (t *trial) fail(format string, values ...any) {
	panic(failure(fmt.Sprintf(format, values...)))
}

func (t *trial) lacks(reason string) {
	panic(lacking(reason))
}

func (t *trial) must(err error, doing string) {
	if err != nil {
		t.fail("%s: %v", doing, err)
	}
}

func (t *trial) ensure(holds bool, format string, values ...any) {
	if !holds {
		t.fail(format, values...)
	}
}

func (t *trial) ask(words ...string) string {
	value, err := t.harness.ask(t.ctx, words...)
	t.must(err, "asking the harness")
	return value
}

// newClient opens one more client, which is closed with the trial.
func (t *trial) newClient() pulsar.Client {
	return t.newClientOf(false)
}

// newClientOf opens one more client, which can begin transactions where told so.
func (t *trial) newClientOf(transactions bool) pulsar.Client {
	told := logrus.New()
	told.SetOutput(os.Stderr)
	told.SetLevel(logrus.ErrorLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:               t.service,
		OperationTimeout:  20 * time.Second,
		Logger:            log.NewLoggerWithLogrus(told),
		EnableTransaction: transactions,
	})
	t.must(err, "opening a client")
	t.closing.Lock()
	defer t.closing.Unlock()
	t.clients = append(t.clients, client)
	return client
}

// close closes the clients, and so every producer and consumer; gives up on one that hangs.
func (t *trial) close() {
	t.closing.Lock()
	clients := t.clients
	t.closing.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, client := range clients {
			client.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(closingBound):
	}
}

// wait pauses unless the scenario's time is over.
func (t *trial) wait(pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-t.ctx.Done():
		t.must(t.ctx.Err(), "waiting")
	}
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded)
}
