// Runs scenarios of tests/clients/security_catalogue.py with Apache Pulsar's Go client.
//
// Called as `PROGRAM DIRECTORY TLS_PORT PLAIN_PORT ISSUER PREFIX [SCENARIO ...]`.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	user            = "bob"
	audience        = "urn:magnetar:tests"
	bound           = 40 * time.Second
	messages        = 10
	renewedMessages = 100
	renewedPause    = 80 * time.Millisecond
	// The library logs why the service refused a connection, and tries again until the operation's time is over.
	unauthenticated = "connection error"
)

// scene is where a scenario finds the service and its files.
type scene struct {
	directory, tls, plain, unnamed, issuer, topic string
}

func (s scene) path(name string) string {
	return filepath.Join(s.directory, name)
}

func (s scene) read(name string) (string, error) {
	text, err := os.ReadFile(s.path(name))
	return string(text), err
}

func (s scene) token(name string) pulsar.Authentication {
	return pulsar.NewAuthenticationTokenFromSupplier(func() (string, error) { return s.read(name + ".token") })
}

func (s scene) client(url string, authentication pulsar.Authentication, names bool) (pulsar.Client, error) {
	told := logrus.New()
	told.SetOutput(os.Stderr)
	told.SetLevel(logrus.ErrorLevel)
	return pulsar.NewClient(pulsar.ClientOptions{
		URL:                   url,
		Authentication:        authentication,
		TLSTrustCertsFilePath: s.path("ca.pem"),
		TLSValidateHostname:   names,
		// Without this the library checks names all the same.
		TLSAllowInsecureConnection: url == s.unnamed && !names,
		OperationTimeout:           10 * time.Second,
		ConnectionTimeout:          5 * time.Second,
		Logger:                     log.NewLoggerWithLogrus(told),
	})
}

// exchange sends messages and receives each before the next.
func (s scene) exchange(client pulsar.Client, err error, count int, pause time.Duration) error {
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:                       s.topic,
		SubscriptionName:            "sub",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := range count {
		sent := fmt.Sprint(number)
		if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(sent)}); err != nil {
			return fmt.Errorf("sending %d: %w", number, err)
		}
		message, err := consumer.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receiving %d: %w", number, err)
		}
		if string(message.Payload()) != sent {
			return fmt.Errorf("the next message is %s, expected %s", message.Payload(), sent)
		}
		if err := consumer.Ack(message); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	return nil
}

// refused wants an error with these words in it.
func (s scene) refused(client pulsar.Client, err error, word string) error {
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic})
	if err == nil {
		producer.Close()
		return fmt.Errorf("a producer was opened")
	}
	if !strings.Contains(err.Error(), word) {
		return fmt.Errorf("refused without %s: %w", word, err)
	}
	return nil
}

func (s scene) run(name string) error {
	var client pulsar.Client
	var err error
	switch name {
	case "token-tls":
		client, err = s.client(s.tls, s.token("alice"), false)
		return s.exchange(client, err, messages, 0)
	case "token-plain":
		client, err = s.client(s.plain, s.token("alice"), false)
		return s.exchange(client, err, messages, 0)
	case "basic-tls":
		password, err := s.read("bob.password")
		if err != nil {
			return err
		}
		basic, err := pulsar.NewAuthenticationBasic(user, password)
		if err != nil {
			return err
		}
		client, err = s.client(s.tls, basic, false)
		return s.exchange(client, err, messages, 0)
	case "certificate":
		shown := pulsar.NewAuthenticationTLS(s.path("carol.cert.pem"), s.path("carol.key.pem"))
		client, err = s.client(s.tls, shown, false)
		return s.exchange(client, err, messages, 0)
	case "name-right":
		client, err = s.client(s.tls, s.token("alice"), true)
		return s.exchange(client, err, messages, 0)
	case "name-wrong":
		client, err = s.client(s.unnamed, s.token("alice"), true)
		if err = s.refused(client, err, "connection error"); err != nil {
			return err
		}
		client, err = s.client(s.unnamed, s.token("alice"), false)
		return s.exchange(client, err, messages, 0)
	case "token-forged":
		client, err = s.client(s.tls, s.token("forged"), false)
		return s.refused(client, err, unauthenticated)
	case "no-credentials":
		client, err = s.client(s.tls, nil, false)
		return s.refused(client, err, unauthenticated)
	case "no-right":
		client, err = s.client(s.tls, s.token("mallory"), false)
		return s.refused(client, err, "AuthorizationError")
	case "token-renewed":
		client, err = s.client(s.tls, s.token("supplied"), false)
		return s.exchange(client, err, renewedMessages, renewedPause)
	case "oauth2":
		return s.oauth2()
	}
	return fmt.Errorf("the Go program has no such scenario")
}

func (s scene) oauth2() error {
	granted := pulsar.NewAuthenticationOAuth2(map[string]string{
		"type":       "client_credentials",
		"issuerUrl":  s.issuer,
		"audience":   audience,
		"privateKey": "file://" + s.path("oauth2.json"),
		"clientId":   "reporting",
	})
	client, err := s.client(s.tls, granted, false)
	return s.exchange(client, err, messages, 0)
}

func main() {
	given := os.Args[1:]
	for _, name := range given[5:] {
		fmt.Printf("begin\t%s\n", name)
		err := scene{
			directory: given[0],
			tls:       "pulsar+ssl://localhost:" + given[1],
			unnamed:   "pulsar+ssl://127.0.0.2:" + given[1],
			plain:     "pulsar://localhost:" + given[2],
			issuer:    given[3],
			topic:     "persistent://public/default/" + given[4] + "-" + name,
		}.run(name)
		if err != nil {
			fmt.Printf("fail\t%s\t%s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Printf("pass\t%s\n", name)
		}
	}
}
