// Runner of the scenarios: verdict lines, time bounds, what the program asks of the service.
//
// Each scenario has a client of its own, closed when it ends; one that hangs fails after its bound, and the program
// goes on. The lines of the protocol are written with writeSync, so that none is lost when the process exits.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const Pulsar = require('pulsar-client');

const CALM_SECONDS = 30;
const DISRUPTIVE_SECONDS = 300;
const DISRUPTIVE = ['moved', 'killed'];
const RECEIVE_MILLISECONDS = 10_000;
const SILENCE_MILLISECONDS = 300;

/** Thrown by a scenario whose feature the library does not have. */
class Lacks extends Error {}

// The library logs by the level of the process's first client, for as long as the process runs: it must not be freed.
const kept = [];

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function say(...fields) {
  fs.writeSync(1, `${fields.join('\t')}\n`);
}

/** What one scenario gets: its client, its topics, the service's ear. */
class Scene {
  constructor(url, prefix, keys, name) {
    Object.assign(this, { url, prefix, keys, name, clients: [] });
    this.client = this.newClient();
  }

  /** Connect once more, for what one client would not do twice. */
  newClient() {
    const client = new Pulsar.Client({
      serviceUrl: this.url,
      operationTimeoutSeconds: 20,
      logLevel: Pulsar.LogLevel.ERROR,
      log: (level, file, line, message) => process.stderr.write(`${file}:${line} ${message}\n`),
    });
    this.clients.push(client);
    kept.push(client);
    return client;
  }

  topic(suffix = '') {
    return `persistent://public/default/${this.prefix}-${this.name}${suffix}`;
  }

  /** Have the service do something, and return the answer's value. */
  async ask(verb, ...words) {
    say('ask', verb, ...words);
    const line = await answers.next();
    const [answer, value] = (line.value ?? 'error\tno answer').split('\t');
    if (answer !== 'done') throw new Error(`the harness could not ${verb} ${words.join(' ')}: ${value}`);
    return value;
  }

  /** Create a producer without batches, unless the settings say otherwise. */
  producer(settings = {}, suffix = '', client = this.client) {
    return client.createProducer({ topic: this.topic(suffix), batchingEnabled: false, ...settings });
  }

  /** Subscribe at Earliest, unless the settings say otherwise. */
  consumer(settings = {}, suffix = '', client = this.client) {
    const topic = 'topics' in settings || 'topicsPattern' in settings ? {} : { topic: this.topic(suffix) };
    return client.subscribe({
      ...topic, subscription: 'sub', subscriptionInitialPosition: 'Earliest', ...settings,
    });
  }

  close() {
    for (const client of this.clients) client.close();
  }
}

/** Expect the library's error of `attempt`; one that is a timeout is no refusal. */
async function expectRefused(what, attempt) {
  let error;
  try {
    await attempt();
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `${what} was not refused`);
  assert.ok(!isTimeout(error), `${what} was not refused, but timed out`);
}

function isTimeout(error) {
  return /TimeOut/.test(error.message);
}

/** Return the next message, or null if none comes. */
async function receiveOrNothing(consumer, milliseconds) {
  try {
    return await consumer.receive(milliseconds);
  } catch (error) {
    if (isTimeout(error)) return null;
    throw error;
  }
}

async function expectSilence(consumer, milliseconds = SILENCE_MILLISECONDS) {
  const message = await receiveOrNothing(consumer, milliseconds);
  assert.ok(message === null, `one message too many: ${message?.getData().toString().slice(0, 100)}`);
}

/** Wait for what has to become true. */
async function until(holds, otherwise, seconds = 10) {
  const end = Date.now() + seconds * 1000;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not within ${seconds} s: ${otherwise}`);
    await sleep(20);
  }
}

/** Send one after the other, each awaited. */
async function send(producer, contents, fields = {}) {
  for (const content of contents) await producer.send({ data: Buffer.from(content), ...fields });
}

/** Return the next `count` messages, not acknowledged. */
async function receive(consumer, count) {
  const messages = [];
  while (messages.length < count) messages.push(await consumer.receive(RECEIVE_MILLISECONDS));
  return messages;
}

/** Return what each of the consumers gets of the next `count` messages, not acknowledged. */
async function receiveOfAll(consumers, count) {
  const received = consumers.map(() => []);
  const end = Date.now() + RECEIVE_MILLISECONDS;
  while (received.reduce((sum, messages) => sum + messages.length, 0) < count) {
    const counts = received.map((messages) => messages.length).join(' and ');
    assert.ok(Date.now() < end, `the consumers got ${counts} messages, ${count} were expected`);
    for (const [index, consumer] of consumers.entries()) {
      let message;
      while ((message = await receiveOrNothing(consumer, 20)) !== null) received[index].push(message);
    }
  }
  return received;
}

async function acknowledge(consumer, messages) {
  await Promise.all(messages.map((message) => consumer.acknowledge(message)));
}

function texts(messages) {
  return messages.map((message) => message.getData().toString());
}

function numbered(begin, end) {
  return Array.from({ length: end - begin }, (_, index) => `message ${begin + index}`);
}

/** Where a message is: an id's text is (ledger,entry,partition,place in the batch). */
function place(messageId) {
  const [ledger, entry, partition, batchIndex] = messageId.toString().slice(1, -1).split(',').map(Number);
  return { ledger, entry, partition, batchIndex };
}

/** Group values of the messages by their partition keys. */
function byKey(messages, value) {
  const groups = {};
  for (const message of messages) (groups[message.getPartitionKey()] ??= []).push(value(message));
  return groups;
}

async function verdictOf(play, scene) {
  const seconds = DISRUPTIVE.includes(scene.name) ? DISRUPTIVE_SECONDS : CALM_SECONDS;
  const bound = new AbortController();
  const late = sleep(seconds * 1000, null, { signal: bound.signal }).then(() => {
    throw new Error(`did not end within ${seconds} s`);
  });
  try {
    await Promise.race([play(scene), late]);
    return ['pass', scene.name];
  } catch (error) {
    const reason = error.message.replace(/\s+/g, ' ').slice(0, 500);
    if (error instanceof Lacks) return ['lacks', scene.name, reason];
    const line = /\((?:.*\/)?(\w+\.js:\d+):\d+\)/.exec((error.stack ?? '').split('\n    at ').slice(1).join('\n'));
    return ['fail', scene.name, line ? `${reason} (${line[1]})` : reason];
  } finally {
    bound.abort();
    late.catch(() => {});
    scene.close();
  }
}

/** Run the scenarios that the command line names, and exit, whatever threads the library still has. */
async function main(scenarios, [url, prefix, keys, ...names]) {
  for (const name of names) {
    say('begin', name);
    if (name in scenarios) say(...(await verdictOf(scenarios[name], new Scene(url, prefix, keys, name))));
    else say('fail', name, 'this program has no such scenario');
  }
  process.exit(0);
}

module.exports = {
  Lacks, acknowledge, assert, byKey, expectRefused, expectSilence, main, numbered, place, receive, receiveOfAll,
  receiveOrNothing, send, sleep, texts, until,
};
