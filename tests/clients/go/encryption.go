package main

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

// keyFiles reads the keys of a directory. The client's own reader has no private key in PKCS #8.
type keyFiles struct {
	directory string
	private   bool
}

func (k keyFiles) PublicKey(name string, metadata map[string]string) (*crypto.EncryptionKeyInfo, error) {
	key, err := os.ReadFile(filepath.Join(k.directory, "public.pem"))
	return crypto.NewEncryptionKeyInfo(name, key, metadata), err
}

func (k keyFiles) PrivateKey(name string, metadata map[string]string) (*crypto.EncryptionKeyInfo, error) {
	if !k.private {
		return nil, errors.New("this consumer has no private key")
	}
	text, err := os.ReadFile(filepath.Join(k.directory, "private.pem"))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("private.pem is not in PEM")
	}
	if block.Type == "PRIVATE KEY" {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		key, isRSA := parsed.(*rsa.PrivateKey)
		if !isRSA {
			return nil, fmt.Errorf("private.pem holds a %T instead of an RSA key", parsed)
		}
		text = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	}
	return crypto.NewEncryptionKeyInfo(name, text, metadata), nil
}

func encryption(t *trial) {
	producer := t.producer(pulsar.ProducerOptions{
		DisableBatching: true,
		Encryption:      &pulsar.ProducerEncryptionInfo{KeyReader: keyFiles{directory: t.keys}, Keys: []string{"key"}},
	})
	t.sendTexts(producer, numbered(0, 5)...)
	options := earliest(pulsar.Exclusive)
	options.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: keyFiles{directory: t.keys, private: true}}
	t.expectTexts(t.consumer(options), numbered(0, 5)...)

	options = earliest(pulsar.Exclusive)
	options.SubscriptionName = "without-keys"
	t.receiveNothing(t.consumer(options))

	options.SubscriptionName = "encrypted"
	options.Decryption = &pulsar.MessageDecryptionInfo{
		KeyReader:                   keyFiles{directory: t.keys},
		ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume,
	}
	for number, message := range t.receiveMany(t.consumer(options), 5) {
		clear := []byte(numbered(number, number+1)[0])
		t.ensure(!bytes.Contains(message.Payload(), clear), "message %d is in the clear without a key", number)
		held := message.GetEncryptionContext()
		t.ensure(held != nil && len(held.Keys) == 1, "message %d does not say with which key it is encrypted", number)
	}
}
