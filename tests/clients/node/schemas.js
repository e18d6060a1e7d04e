// Scenarios of schemas.
//
// This library registers a schema with the broker and leaves the encoding to the application: here it is done by hand.
'use strict';

const { Lacks, assert, receive, until } = require('./harness');

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

async function autoProduce() {
  throw new Lacks('no AUTO_PRODUCE schema in this client');
}

const PERSON = { schemaType: 'Avro', schema: RECORD };

/** The schema of persons with a string more, and what else there is about that field. */
function withCity(more) {
  const fields = [...FIELDS, { name: 'city', type: 'string', ...more }];
  return { schemaType: 'Avro', schema: JSON.stringify({ type: 'record', name: 'Person', fields }) };
}

async function isIncompatible(attempt) {
  try {
    await attempt();
  } catch (error) {
    if (/IncompatibleSchema/.test(error.message)) return true;
    throw error;
  }
  return false;
}

async function expectIncompatible(what, attempt) {
  assert.ok(await isIncompatible(attempt), `${what} was not refused`);
}

async function evolution(scene) {
  const consumer = await scene.consumer();
  const city = Buffer.concat([toAvro(PEOPLE[0]), Buffer.of(8), Buffer.from('Rome')]);
  const sent = [[PERSON, toAvro(PEOPLE[0])], [withCity({ default: '' }), city], [PERSON, toAvro(PEOPLE[1])]];
  for (const [schema, data] of sent) await (await scene.producer({ schema })).send({ data });
  const received = await receive(consumer, sent.length);
  assert.deepEqual(received.map((message) => message.getData()), sent.map(([, data]) => data));
}

async function refused(scene) {
  const producer = await scene.producer({ schema: PERSON });
  await producer.send({ data: toAvro(PEOPLE[0]) });
  for (const schema of [withCity({}), { schemaType: 'String' }]) {
    await expectIncompatible('a producer', () => scene.producer({ schema }));
  }
  await expectIncompatible('a consumer', () => scene.consumer({ schema: { schemaType: 'String' } }));
  await producer.send({ data: toAvro(PEOPLE[1]) });
  const received = await receive(await scene.consumer({ schema: PERSON }), 2);
  assert.deepEqual(received.map((message) => fromAvro(message.getData())), PEOPLE);
}

async function firstConsumer(scene) {
  const consumer = await scene.consumer({ schema: PERSON });
  await expectIncompatible('a producer', () => scene.producer({ schema: { schemaType: 'String' } }));
  await (await scene.producer({ schema: PERSON })).send({ data: toAvro(PEOPLE[0]) });
  assert.equal((await receive(consumer, 1)).length, 1);
}

async function enforced(scene) {
  await scene.producer({ schema: PERSON });
  await (await scene.producer()).close();
  await scene.ask('enforce', scene.topic());
  const attempt = async () => (await scene.producer()).close();
  await until(() => isIncompatible(attempt), 'a producer without a schema is refused');
  await (await scene.producer({ schema: PERSON })).send({ data: toAvro(PEOPLE[0]) });
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
  'schema-auto-produce': autoProduce,
  'schema-evolution': evolution,
  'schema-refused': refused,
  'schema-first-consumer': firstConsumer,
  'schema-enforced': enforced,
};
