// Scenarios of what is published: contents, fields, batches, chunks, encryption.
'use strict';

const crypto = require('node:crypto');
const path = require('node:path');
const {
  Lacks, acknowledge, assert, expectRefused, expectSilence, numbered, place, receive, send, texts, until,
} = require('./harness');

async function plain(scene) {
  const producer = await scene.producer();
  const consumer = await scene.consumer();
  assert.notEqual(producer.getProducerName(), '', 'the producer has no name');
  await send(producer, numbered(0, 10));
  const messages = await receive(consumer, 10);
  assert.deepEqual(texts(messages), numbered(0, 10));
  const ids = messages.map((message) => place(message.getMessageId()));
  const ascend = ids.every((id, index) => index === 0 || id.ledger > ids[index - 1].ledger
    || (id.ledger === ids[index - 1].ledger && id.entry > ids[index - 1].entry));
  assert.ok(ascend, `ids do not ascend: ${JSON.stringify(ids)}`);
  assert.equal(await scene.ask('backlog', scene.topic(), 'sub'), '10', 'backlog before acknowledgements');
  await acknowledge(consumer, messages);
  await until(async () => (await scene.ask('backlog', scene.topic(), 'sub')) === '0', 'the backlog is 0');
}

function compressed(compressionType) {
  return async (scene) => {
    const contents = numbered(0, 10).map((content) => `${content} compressible`.padEnd(25).repeat(400));
    assert.ok(contents.every((content) => content.length === 10_000));
    const consumer = await scene.consumer();
    await send(await scene.producer({ compressionType }), contents);
    assert.deepEqual(texts(await receive(consumer, 10)), contents);
  };
}

async function batches(scene) {
  const consumer = await scene.consumer();
  const producer = await scene.producer({
    batchingEnabled: true, batchingMaxMessages: 20, batchingMaxPublishDelayMs: 500,
  });
  const sends = numbered(0, 100).map((content) => producer.send({ data: Buffer.from(content) }));
  await producer.flush();
  await Promise.all(sends);
  const messages = await receive(consumer, 100);
  assert.deepEqual(texts(messages), numbered(0, 100));
  const ids = messages.map((message) => place(message.getMessageId()));
  assert.equal(Math.max(...ids.map((id) => id.batchIndex)), 19, 'the highest place in a batch');
  assert.equal(new Set(ids.map((id) => `${id.ledger}:${id.entry}`)).size, 5, 'entries');
}

async function keys(scene) {
  const producer = await scene.producer();
  const consumer = await scene.consumer();
  await send(producer, ['both'], { partitionKey: 'a key', orderingKey: 'an order' });
  await send(producer, ['without']);
  const messages = await receive(consumer, 2);
  assert.deepEqual(messages.map((message) => message.getPartitionKey()), ['a key', '']);
  assert.deepEqual(messages.map((message) => message.getOrderingKey()), ['an order', '']);
}

async function properties(scene) {
  const given = { plain: 'value', empty: '', größe: '中文 🚀', 'a key with = & spaces': 'line\nbreak\ttab' };
  const producer = await scene.producer();
  const consumer = await scene.consumer();
  await send(producer, ['with'], { properties: given });
  await send(producer, ['without']);
  const messages = await receive(consumer, 2);
  assert.deepEqual(messages.map((message) => ({ ...message.getProperties() })), [given, {}]);
}

async function eventTime(scene) {
  const producer = await scene.producer();
  const consumer = await scene.consumer();
  await send(producer, ['dated'], { eventTimestamp: 1_234_567_890_123 });
  await send(producer, ['undated']);
  const messages = await receive(consumer, 2);
  assert.deepEqual(messages.map((message) => message.getEventTimestamp()), [1_234_567_890_123, 0]);
  const age = Date.now() - messages[0].getPublishTimestamp();
  assert.ok(Math.abs(age) < 10_000, `published ${age} ms ago`);
}

async function chunks(scene) {
  const content = crypto.randomBytes(12_000_000);
  const consumer = await scene.consumer();
  const producer = await scene.producer({ chunkingEnabled: true });
  for (const data of ['before', content, 'after']) await send(producer, [data]);
  const [before, large, after] = await receive(consumer, 3);
  assert.deepEqual(texts([before, after]), ['before', 'after']);
  assert.ok(large.getData().equals(content), `other bytes: ${large.getData().length} of 12000000 expected`);
}

async function tooLarge(scene) {
  const producer = await scene.producer();
  const consumer = await scene.consumer();
  await expectRefused('a message of 6,000,000 bytes', () => producer.send({ data: Buffer.alloc(6_000_000) }));
  await send(producer, ['small']);
  assert.deepEqual(texts(await receive(consumer, 1)), ['small']);
}

async function encryption(scene) {
  const publicKeyPath = path.join(scene.keys, 'public.pem');
  const privateKeyPath = path.join(scene.keys, 'private.pem');
  const withKey = await scene.consumer({ subscription: 'with', privateKeyPath });
  const without = await scene.consumer({ subscription: 'without' });
  await send(await scene.producer({ publicKeyPath, encryptionKey: 'key' }), numbered(0, 3));
  assert.deepEqual(texts(await receive(withKey, 3)), numbered(0, 3), 'received with the private key');
  await expectSilence(without, 500);
}

async function interceptors() {
  throw new Lacks('no interceptors in this client');
}

module.exports = {
  plain,
  'compress-lz4': compressed('LZ4'),
  'compress-zlib': compressed('Zlib'),
  'compress-zstd': compressed('ZSTD'),
  'compress-snappy': compressed('SNAPPY'),
  batches,
  keys,
  properties,
  'event-time': eventTime,
  chunks,
  'too-large': tooLarge,
  encryption,
  interceptors,
};
