package main

import (
	"reflect"

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
