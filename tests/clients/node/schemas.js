// Scenarios of schemas.
//
// This library registers a schema with the broker and leaves the encoding to the application: here it is done by hand.
'use strict';

const { Lacks, assert, receive } = require('./harness');

const FIELDS = [{ name: 'name', type: 'string' }, { name: 'age', type: 'int' }];
const RECORD = JSON.stringify({ type: 'record', name: 'Person', fields: FIELDS });
const PEOPLE = [{ name: 'Ada', age: 36 }, { name: 'Grüße', age: 7 }];

function thereAndBack(schema, values, encode, decode) {
  return async (scene) => {
    const consumer = await scene.consumer({ schema });
    const producer = await scene.producer({ schema });
    for (const value of values) await producer.send({ data: encode(value) });
    const received = await receive(consumer, values.length);
    assert.deepEqual(received.map((message) => decode(message.getData())), values);
  };
}

async function int64() {
  // Verified against Apache Pulsar: the topic of such a producer has no schema; this library sends those of numbers
  // to no broker.
  throw new Lacks('client: an INT64 schema is not sent to the broker');
}

/** Avro: lengths and numbers, here all below 64, are one byte, zigzag. */
function toAvro({ name, age }) {
  const text = Buffer.from(name);
  return Buffer.concat([Buffer.of(text.length * 2), text, Buffer.of(age * 2)]);
}

function fromAvro(data) {
  const end = 1 + data[0] / 2;
  return { name: data.subarray(1, end).toString(), age: data[end] / 2 };
}

/** Protobuf: field 1 is text, field 2 a varint; lengths and numbers, here all below 128, are one byte. */
function toProtobuf({ name, age }) {
  const text = Buffer.from(name);
  return Buffer.concat([Buffer.of(0x0a, text.length), text, Buffer.of(0x10, age)]);
}

function fromProtobuf(data) {
  const end = 2 + data[1];
  return { name: data.subarray(2, end).toString(), age: data[end + 1] };
}

async function protobufNative() {
  throw new Lacks('no PROTOBUF_NATIVE schema in this version of the client');
}

async function keyValue() {
  throw new Lacks('the binary definition of a KEY_VALUE schema cannot be given to this client');
}

async function auto(scene) {
  const producer = await scene.producer({ schema: { schemaType: 'Avro', schema: RECORD } });
  const consumer = await scene.consumer({ schema: { schemaType: 'AutoConsume' } });
  await producer.send({ data: toAvro(PEOPLE[0]) });
  const [message] = await receive(consumer, 1);
  assert.deepEqual(message.getData(), toAvro(PEOPLE[0]));
  throw new Lacks('an AUTO_CONSUME consumer gets the bytes, and no call of this client gives the schema');
}

module.exports = {
  'schema-string': thereAndBack({ schemaType: 'String' }, ['plain', '', 'größe 中文 🚀'], Buffer.from, String),
  'schema-int64': int64,
  'schema-json': thereAndBack(
    { schemaType: 'Json', schema: RECORD }, PEOPLE, (value) => Buffer.from(JSON.stringify(value)), JSON.parse,
  ),
  'schema-avro': thereAndBack({ schemaType: 'Avro', schema: RECORD }, PEOPLE, toAvro, fromAvro),
  'schema-protobuf': thereAndBack(
    { schemaType: 'Protobuf', schema: RECORD }, PEOPLE, toProtobuf, fromProtobuf,
  ),
  'schema-protobuf-native': protobufNative,
  'schema-key-value': keyValue,
  'schema-auto': auto,
};
