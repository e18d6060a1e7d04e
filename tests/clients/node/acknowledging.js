// Scenarios of acknowledgements, redelivery, dead letters and delayed messages.
'use strict';

const {
  Lacks, acknowledge, assert, expectSilence, numbered, place, receive, send, texts,
} = require('./harness');

const GIVEN_BACK = { subscriptionType: 'Shared', nAckRedeliverTimeoutMs: 100 };

async function ackIndividual(scene) {
  const consumer = await scene.consumer();
  await send(await scene.producer(), numbered(0, 10));
  const messages = await receive(consumer, 10);
  await acknowledge(consumer, messages.filter((_, index) => index % 2 === 1));
  await consumer.close();
  const following = await scene.consumer();
  const expected = texts(messages.filter((_, index) => index % 2 === 0));
  assert.deepEqual(texts(await receive(following, 5)), expected, 'received by the next consumer');
  await expectSilence(following);
}

async function ackCumulative(scene) {
  const consumer = await scene.consumer();
  await send(await scene.producer(), numbered(0, 10));
  await consumer.acknowledgeCumulative((await receive(consumer, 10))[4]);
  await consumer.close();
  const following = await scene.consumer();
  assert.deepEqual(texts(await receive(following, 5)), numbered(5, 10), 'received by the next consumer');
  await expectSilence(following);
}

async function ackBatchIndex(scene) {
  const consumer = await scene.consumer({ batchIndexAckEnabled: true });
  const producer = await scene.producer({
    batchingEnabled: true, batchingMaxMessages: 10, batchingMaxPublishDelayMs: 500,
  });
  await Promise.all(numbered(0, 10).map((content) => producer.send({ data: Buffer.from(content) })));
  const messages = await receive(consumer, 10);
  assert.equal(new Set(messages.map((message) => place(message.getMessageId()).entry)).size, 1, 'entries');
  await acknowledge(consumer, messages.filter((_, index) => index % 2 === 0));
  await consumer.close();
  const following = await scene.consumer({ batchIndexAckEnabled: true });
  const expected = texts(messages.filter((_, index) => index % 2 === 1));
  assert.deepEqual(texts(await receive(following, 5)), expected, 'received by the next consumer');
  await expectSilence(following);
}

async function nack(scene) {
  const consumer = await scene.consumer(GIVEN_BACK);
  await send(await scene.producer(), ['given back']);
  for (const count of [0, 1, 2]) {
    const [message] = await receive(consumer, 1);
    assert.equal(message.getRedeliveryCount(), count, 'redelivery count');
    assert.equal(message.getData().toString(), 'given back');
    if (count < 2) consumer.negativeAcknowledge(message);
    else await consumer.acknowledge(message);
  }
  await expectSilence(consumer);
}

async function deadLetter(scene) {
  const letters = await scene.consumer({ subscription: 'letters' }, '-dead');
  const deadLetterPolicy = { deadLetterTopic: scene.topic('-dead'), maxRedeliverCount: 2 };
  const consumer = await scene.consumer({ ...GIVEN_BACK, deadLetterPolicy });
  await send(await scene.producer(), ['undeliverable'], { properties: { kept: 'yes' } });
  for (const count of [0, 1, 2]) {
    const [message] = await receive(consumer, 1);
    assert.equal(message.getRedeliveryCount(), count, 'redelivery count');
    consumer.negativeAcknowledge(message);
  }
  const [letter] = await receive(letters, 1);
  assert.equal(letter.getData().toString(), 'undeliverable');
  assert.equal(letter.getProperties().kept, 'yes');
  await expectSilence(consumer);
}

async function retryLetter() {
  throw new Lacks('no retry letter topic in this client');
}

async function delayed(scene) {
  const consumer = await scene.consumer({ subscriptionType: 'Shared' });
  const producer = await scene.producer();
  const began = Date.now();
  await send(producer, ['delayed'], { deliverAfter: 2000 });
  await send(producer, ['behind']);
  assert.deepEqual(texts(await receive(consumer, 1)), ['behind'], 'received first');
  assert.ok(Date.now() - began < 1500, 'the one behind came late');
  assert.deepEqual(texts(await receive(consumer, 1)), ['delayed'], 'received second');
  const passed = Date.now() - began;
  assert.ok(passed >= 1500 && passed <= 10_000, `delivered after ${passed} ms`);
}

module.exports = {
  'ack-individual': ackIndividual,
  'ack-cumulative': ackCumulative,
  'ack-batch-index': ackBatchIndex,
  nack,
  'dead-letter': deadLetter,
  'retry-letter': retryLetter,
  delayed,
};
