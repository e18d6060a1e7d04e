// Scenarios of producers and their topics: names, access modes, partitions, deduplication, termination.
'use strict';

const {
  Lacks, acknowledge, assert, byKey, expectRefused, expectSilence, numbered, place, receive, send, sleep, texts,
} = require('./harness');

async function producerName(scene) {
  const first = await scene.producer({ producerName: 'taken' });
  const other = scene.newClient();
  const open = () => scene.producer({ producerName: 'taken' }, '', other);
  await expectRefused('a second producer of that name', open);
  await first.close();
  const second = await open();
  assert.equal(second.getProducerName(), 'taken');
  await send(second, ['stored']);
}

async function accessExclusive(scene) {
  const open = () => scene.producer({ accessMode: 'Exclusive' });
  const first = await open();
  await expectRefused('a second Exclusive producer', open);
  await send(first, ['of the first']);
  await first.close();
  await send(await open(), ['of the second']);
  assert.deepEqual(texts(await receive(await scene.consumer(), 2)), ['of the first', 'of the second']);
}

async function accessWait(scene) {
  const holder = await scene.producer({ accessMode: 'Exclusive' });
  let ready = false;
  const waiting = scene.producer({ accessMode: 'WaitForExclusive' }).then((producer) => {
    ready = true;
    return producer;
  });
  await sleep(500);
  assert.ok(!ready, 'the second producer is ready while the first holds the topic');
  await send(holder, ['of the holder']);
  await holder.close();
  await send(await waiting, ['of the second']);
  assert.deepEqual(texts(await receive(await scene.consumer(), 2)), ['of the holder', 'of the second']);
}

async function accessFencing(scene) {
  const holder = await scene.producer({ accessMode: 'Exclusive' });
  await send(holder, ['of the holder']);
  const taker = await scene.producer({ accessMode: 'ExclusiveWithFencing' }, '', scene.newClient());
  await expectRefused('a send of the fenced producer', () => send(holder, ['fenced']));
  await send(taker, ['of the taker']);
  const consumer = await scene.consumer();
  assert.deepEqual(texts(await receive(consumer, 2)), ['of the holder', 'of the taker']);
  await expectSilence(consumer);
}

async function partitioned(scene) {
  await scene.ask('partition', scene.topic(), 3);
  const producer = await scene.producer({ messageRoutingMode: 'RoundRobinDistribution' });
  const consumer = await scene.consumer();
  for (let number = 0; number < 50; number += 1) {
    await send(producer, [String(number)], { partitionKey: `key ${number % 10}` });
  }
  const keyed = await receive(consumer, 50);
  const partitions = Object.values(byKey(keyed, (message) => place(message.getMessageId()).partition));
  assert.equal(partitions.length, 10, 'keys');
  assert.ok(partitions.every((found) => new Set(found).size === 1), `keys in partitions: ${partitions.join('; ')}`);
  assert.ok(new Set(partitions.flat()).size > 1, 'all keys are in one partition');
  for (const [key, numbers] of Object.entries(byKey(keyed, (message) => Number(message.getData())))) {
    const first = Number(key.split(' ')[1]);
    assert.deepEqual(numbers, [0, 10, 20, 30, 40].map((step) => first + step), `order of ${key}`);
  }
  await send(producer, numbered(0, 60));
  const messages = await receive(consumer, 60);
  assert.deepEqual(texts(messages).sort(), numbered(0, 60).sort());
  assert.deepEqual(used(messages), [0, 1, 2], 'partitions of messages without key');
}

function used(messages) {
  return [...new Set(messages.map((message) => place(message.getMessageId()).partition))].sort();
}

async function partitionsGrow(scene) {
  const routing = { messageRoutingMode: 'RoundRobinDistribution' };
  await scene.ask('partition', scene.topic(), 2);
  const before = await scene.producer(routing);
  let consumer = await scene.consumer();
  await send(before, numbered(0, 10));
  const first = await receive(consumer, 10);
  assert.deepEqual(used(first), [0, 1], 'partitions before');
  await acknowledge(consumer, first);
  await before.close();
  await consumer.close();
  await scene.ask('partition', scene.topic(), 4);
  const after = await scene.producer(routing);
  consumer = await scene.consumer();
  await send(after, numbered(10, 50));
  const messages = await receive(consumer, 40);
  assert.deepEqual(texts(messages).sort(), numbered(10, 50).sort());
  assert.deepEqual(used(messages), [0, 1, 2, 3], 'partitions after');
}

async function nonPersistent(scene) {
  const topic = scene.topic().replace('persistent://', 'non-persistent://');
  const consumer = await scene.consumer({ topic, subscriptionInitialPosition: 'Latest' });
  await send(await scene.producer({ topic }), numbered(0, 10));
  assert.deepEqual(texts(await receive(consumer, 10)), numbered(0, 10));
}

async function deduplication(scene) {
  await scene.ask('deduplicate', scene.topic());
  const consumer = await scene.consumer();
  for (const begin of [0, 5]) {
    const producer = await scene.producer({ producerName: 'deduplicated' });
    for (let number = begin; number < begin + 10; number += 1) {
      await send(producer, [`message ${number}`], { sequenceId: number });
    }
    await producer.close();
  }
  assert.deepEqual(texts(await receive(consumer, 15)), numbered(0, 15));
  await expectSilence(consumer);
}

async function endOfTopic(scene) {
  const producer = await scene.producer({ sendTimeoutMs: 3000 });
  const consumer = await scene.consumer();
  await send(producer, numbered(0, 5));
  await scene.ask('terminate', scene.topic());
  // This version of the library has no better error for it than a timeout.
  await assert.rejects(send(producer, ['too late']), 'a send to a terminated topic did not fail');
  assert.deepEqual(texts(await receive(consumer, 5)), numbered(0, 5));
  await expectSilence(consumer);
  throw new Lacks('no call or event says that a topic ended in this client; sends fail, consumers drain');
}

module.exports = {
  'producer-name': producerName,
  'access-exclusive': accessExclusive,
  'access-wait': accessWait,
  'access-fencing': accessFencing,
  partitioned,
  'partitions-grow': partitionsGrow,
  'non-persistent': nonPersistent,
  deduplication,
  'end-of-topic': endOfTopic,
};
