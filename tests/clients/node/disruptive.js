// Scenarios in which the topic moves or its broker dies under traffic.
'use strict';

const { assert, receiveOrNothing, sleep, until } = require('./harness');

const COUNT = 300;

/** Within which traffic recovers from a disruption: the library doubles its pauses while no broker answers. */
const RECOVERS_SECONDS = 120;

/** Subscribe, and once more after a timeout.
 *
 * Other programs move the same bundle meanwhile, and the library's C++ core does not try again when a broker that no
 * longer owns the topic refuses to subscribe (https://github.com/apache/pulsar-client-cpp/pull/577).
 */
async function subscribed(scene) {
  try {
    return await scene.consumer();
  } catch (error) {
    if (!/time/i.test(error.message)) throw error;
    return scene.consumer();
  }
}

/** One producer that sends numbers one at a time, and one consumer that acknowledges them.
 *
 * The last 100 are not sent before `release`, so that the traffic does not end before its disruption.
 */
class Traffic {
  constructor() {
    Object.assign(this, { sent: [], failed: new Map(), received: [], ended: false });
    this.released = new Promise((resolve) => { this.release = resolve; });
  }

  static async start(scene) {
    const traffic = new Traffic();
    const consumer = await subscribed(scene);
    const producer = await scene.producer({ sendTimeoutMs: 20_000 }, '', scene.newClient());
    traffic.send(producer);
    traffic.receive(consumer);
    return traffic;
  }

  get tried() {
    return this.sent.length + this.failed.size;
  }

  async send(producer) {
    for (let number = 0; number < COUNT && !this.ended; number += 1) {
      if (number === COUNT - 100) await this.released;
      try {
        await producer.send({ data: Buffer.from(String(number)) });
        this.sent.push(number);
      } catch (error) {
        this.failed.set(number, error.message);
      }
      await sleep(2);
    }
  }

  async receive(consumer) {
    while (!this.ended) {
      const message = await receiveOrNothing(consumer, 500).catch(() => { this.ended = true; return null; });
      if (message !== null) {
        this.received.push(Number(message.getData()));
        await consumer.acknowledge(message).catch(() => {}); // not connected: the message will come again
      }
    }
  }

  /** Wait until every number was tried and what was stored arrived. */
  async wait(seconds) {
    await until(() => this.tried === COUNT, `${COUNT} sends have ended`, seconds);
    const missing = () => this.sent.filter((number) => !this.received.includes(number));
    await until(() => missing().length === 0, 'every stored message arrives', seconds);
    this.ended = true;
  }
}

async function moved(scene) {
  const traffic = await Traffic.start(scene);
  for (const count of [50, 120]) {
    await until(() => traffic.tried >= count, `${count} sends have ended`, 20);
    await scene.ask('move', scene.topic());
  }
  traffic.release();
  await traffic.wait(RECOVERS_SECONDS);
  assert.deepEqual([...traffic.failed], [], 'failed sends');
  const order = [...new Set(traffic.received)];
  assert.deepEqual(order, Array.from({ length: COUNT }, (_, number) => number), 'order of first deliveries');
}

async function killed(scene) {
  const traffic = await Traffic.start(scene);
  await until(() => traffic.tried >= 100, '100 sends have ended', 20);
  await scene.ask('kill', scene.topic());
  traffic.release();
  await traffic.wait(RECOVERS_SECONDS);
  const late = [...traffic.failed].filter(([number]) => number >= COUNT - 50);
  assert.deepEqual(late, [], 'sends that failed long after the kill');
}

module.exports = { moved, killed };
