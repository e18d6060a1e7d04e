package main

import (
	"bytes"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/typepb"
)

const recordDefinition = `{"type": "record", "name": "Reading", "namespace": "clients", "fields": [
	{"name": "sensor", "type": "string"},
	{"name": "number", "type": "long"},
	{"name": "tags", "type": {"type": "array", "items": "string"}}
]}`

const timestampDefinition = `{"type": "record", "name": "Timestamp", "namespace": "google.protobuf", "fields": [
	{"name": "seconds", "type": "long"},
	{"name": "nanos", "type": "int"}
]}`

type reading struct {
	Sensor string   `json:"sensor" avro:"sensor"`
	Number int64    `json:"number" avro:"number"`
	Tags   []string `json:"tags"   avro:"tags"`
}

var readings = []reading{{"roof", -7, []string{"warm", "wet"}}, {"Keller 東", 1 << 40, []string{}}}

// schemaBack sends values and checks each that comes back, as decode gives it.
func schemaBack[T any](t *trial, schema pulsar.Schema, values []T, decode func(pulsar.Message) (T, error),
	same func(T, T) bool) {
	options := earliest(pulsar.Exclusive)
	options.Schema = schema
	consumer := t.consumer(options)
	producer := t.producer(pulsar.ProducerOptions{Schema: schema})
	for _, value := range values {
		t.send(producer, &pulsar.ProducerMessage{Value: value})
	}
	for _, value := range values {
		message := t.receive(consumer)
		t.ensure(len(message.SchemaVersion()) > 0, "a message has no schema version")
		got, err := decode(message)
		t.must(err, "decoding")
		t.ensure(same(got, value), "%v came back as %v", value, got)
		t.ack(consumer, message)
	}
}

func schemaString(t *trial) {
	decode := func(message pulsar.Message) (string, error) {
		var text *string
		err := message.GetSchemaValue(&text)
		if err != nil {
			return "", err
		}
		return *text, nil
	}
	same := func(got, sent string) bool { return got == sent }
	schemaBack(t, pulsar.NewStringSchema(nil), []string{"text", "naïve 東京 🚀", "x"}, decode, same)
}

func schemaInt64(t *trial) {
	decode := func(message pulsar.Message) (int64, error) {
		var number int64
		err := message.GetSchemaValue(&number)
		return number, err
	}
	same := func(got, sent int64) bool { return got == sent }
	schemaBack(t, pulsar.NewInt64Schema(nil), []int64{0, -1, 1 << 62}, decode, same)
}

func decodeReading(message pulsar.Message) (reading, error) {
	var got reading
	err := message.GetSchemaValue(&got)
	return got, err
}

func sameReading(got, sent reading) bool { return reflect.DeepEqual(got, sent) }

func schemaJSON(t *trial) {
	schema, err := pulsar.NewJSONSchemaWithValidation(recordDefinition, nil)
	t.must(err, "making the schema")
	schemaBack(t, schema, readings, decodeReading, sameReading)
}

func schemaAvro(t *trial) {
	schema, err := pulsar.NewAvroSchemaWithValidation(recordDefinition, nil)
	t.must(err, "making the schema")
	schemaBack(t, schema, readings, decodeReading, sameReading)
}

func schemaProtobuf(t *trial) {
	schema, err := pulsar.NewProtoSchemaWithValidation(timestampDefinition, nil)
	t.must(err, "making the schema")
	decode := func(message pulsar.Message) (*timestamppb.Timestamp, error) {
		got := &timestamppb.Timestamp{}
		err := message.GetSchemaValue(got)
		return got, err
	}
	same := func(got, sent *timestamppb.Timestamp) bool { return proto.Equal(got, sent) }
	schemaBack(t, schema, []*timestamppb.Timestamp{{Seconds: 1234, Nanos: 5}, {Seconds: -1}}, decode, same)
}

// The message has fields of messages from other files, which the schema's descriptor has to bring along.
func schemaProtobufNative(t *trial) {
	sent := &typepb.Type{
		Name:          "clients.Reading",
		Fields:        []*typepb.Field{{Name: "sensor", Number: 1, Kind: typepb.Field_TYPE_STRING}},
		SourceContext: &sourcecontextpb.SourceContext{FileName: "reading.proto"},
	}
	decode := func(message pulsar.Message) (*typepb.Type, error) {
		got := &typepb.Type{}
		err := message.GetSchemaValue(got)
		return got, err
	}
	same := func(got, sent *typepb.Type) bool { return proto.Equal(got, sent) }
	schema := pulsar.NewProtoNativeSchemaWithMessage(&typepb.Type{}, nil)
	schemaBack(t, schema, []*typepb.Type{sent, {Name: "empty"}}, decode, same)
}

func schemaKeyValue(t *trial) {
	t.lacks("no KEY_VALUE schema in this client")
}

// This client has AUTO_CONSUME in effect: without a schema of its own it reads with the one of the message's version.
func schemaAuto(t *trial) {
	schema, err := pulsar.NewAvroSchemaWithValidation(recordDefinition, nil)
	t.must(err, "making the schema")
	producer := t.producer(pulsar.ProducerOptions{Schema: schema})
	t.send(producer, &pulsar.ProducerMessage{Value: readings[0]})
	consumer := t.consumer(earliest(pulsar.Exclusive))
	message := t.receive(consumer)
	var got map[string]any
	t.must(message.GetSchemaValue(&got), "decoding by the topic's schema")
	expected := map[string]any{"sensor": "roof", "number": int64(-7), "tags": []any{"warm", "wet"}}
	t.ensure(reflect.DeepEqual(got, expected), "the fields are %v instead of %v", got, expected)
	t.ack(consumer, message)
}

func schemaAutoProduce(t *trial) {
	t.lacks("no AUTO_PRODUCE schema in this client")
}

// withField gives the definition of readings with a string more, and more about that field.
func withField(t *trial, more string) pulsar.Schema {
	definition := strings.Replace(recordDefinition, "\n]}", `, {"name": "place", "type": "string"`+more+"}\n]}", 1)
	t.ensure(definition != recordDefinition, "the definition has another end")
	schema, err := pulsar.NewAvroSchemaWithValidation(definition, nil)
	t.must(err, "making the schema")
	return schema
}

func readingSchema(t *trial) pulsar.Schema {
	schema, err := pulsar.NewAvroSchemaWithValidation(recordDefinition, nil)
	t.must(err, "making the schema")
	return schema
}

func (t *trial) ensureIncompatible(what string, err error) {
	t.ensure(err != nil, "%s was not refused", what)
	t.ensure(strings.Contains(err.Error(), "IncompatibleSchema"), "%s was refused with %v", what, err)
}

func schemaEvolution(t *trial) {
	consumer := t.consumer(earliest(pulsar.Exclusive))
	type placed struct {
		Sensor string   `avro:"sensor"`
		Number int64    `avro:"number"`
		Tags   []string `avro:"tags"`
		Place  string   `avro:"place"`
	}
	later := placed{"roof", -7, []string{"warm", "wet"}, "Rome"}
	t.send(t.producer(pulsar.ProducerOptions{Schema: readingSchema(t)}), &pulsar.ProducerMessage{Value: readings[0]})
	evolved := withField(t, `, "default": ""`)
	t.send(t.producer(pulsar.ProducerOptions{Schema: evolved}), &pulsar.ProducerMessage{Value: later})
	t.send(t.producer(pulsar.ProducerOptions{Schema: readingSchema(t)}), &pulsar.ProducerMessage{Value: readings[1]})
	messages := t.receiveMany(consumer, 3)
	first, second, third := messages[0].SchemaVersion(), messages[1].SchemaVersion(), messages[2].SchemaVersion()
	t.ensure(!bytes.Equal(first, second), "both schemas have version %v", first)
	t.ensure(bytes.Equal(first, third), "the first schema has versions %v and %v", first, third)
	var got placed
	t.must(messages[1].GetSchemaValue(&got), "decoding")
	t.ensure(reflect.DeepEqual(got, later), "%v came back as %v", later, got)
}

func schemaRefused(t *trial) {
	producer := t.producer(pulsar.ProducerOptions{Schema: readingSchema(t)})
	t.send(producer, &pulsar.ProducerMessage{Value: readings[0]})
	for _, schema := range []pulsar.Schema{withField(t, ""), pulsar.NewStringSchema(nil)} {
		_, err := t.tryProducer(pulsar.ProducerOptions{Schema: schema})
		t.ensureIncompatible("a producer", err)
	}
	options := earliest(pulsar.Exclusive)
	options.Schema = pulsar.NewStringSchema(nil)
	_, err := t.tryConsumer(options)
	t.ensureIncompatible("a consumer", err)
	t.send(producer, &pulsar.ProducerMessage{Value: readings[1]})
	options.Schema = readingSchema(t)
	for number, message := range t.receiveMany(t.consumer(options), 2) {
		got, err := decodeReading(message)
		t.must(err, "decoding")
		t.ensure(sameReading(got, readings[number]), "%v came back as %v", readings[number], got)
	}
}

func schemaFirstConsumer(t *trial) {
	options := earliest(pulsar.Exclusive)
	options.Schema = readingSchema(t)
	consumer := t.consumer(options)
	_, err := t.tryProducer(pulsar.ProducerOptions{Schema: pulsar.NewStringSchema(nil)})
	t.ensureIncompatible("a producer", err)
	t.send(t.producer(pulsar.ProducerOptions{Schema: readingSchema(t)}), &pulsar.ProducerMessage{Value: readings[0]})
	t.receive(consumer)
}

func schemaEnforced(t *trial) {
	t.producer(pulsar.ProducerOptions{Schema: readingSchema(t)})
	t.producer(pulsar.ProducerOptions{}).Close()
	t.ask("enforce", t.topic)
	end := time.Now().Add(receiveBound)
	for {
		producer, err := t.tryProducer(pulsar.ProducerOptions{})
		if err != nil {
			t.ensureIncompatible("a producer without a schema", err)
			break
		}
		producer.Close()
		t.ensure(time.Now().Before(end), "a producer without a schema is still taken")
		time.Sleep(50 * time.Millisecond)
	}
	t.send(t.producer(pulsar.ProducerOptions{Schema: readingSchema(t)}), &pulsar.ProducerMessage{Value: readings[0]})
}
