// Scenarios of tests/clients/security_catalogue.py with the Node.js client; built and started like main.js.
//
// node security.js DIRECTORY TLS_PORT PLAIN_PORT ISSUER PREFIX [SCENARIO ...]
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const Pulsar = require('pulsar-client');

const USER = 'bob';
const AUDIENCE = 'urn:magnetar:tests';
const RECEIVE_MILLISECONDS = 10_000;
const RENEWED_MESSAGES = 100;
const RENEWED_PAUSE_MILLISECONDS = 80;

// Which of them depends on when the service closes the connection; the library logs the reason.
const UNAUTHENTICATED = /AuthenticationError|ConnectError|TimeOut/;

// The library logs by the level of the process's first client, for as long as the process runs: it must not be freed.
const kept = [];

function say(...fields) {
  fs.writeSync(1, `${fields.join('\t')}\n`);
}

/** Addresses and files of the service, for one scenario. */
class Scene {
  constructor([directory, tlsPort, plainPort, issuer, prefix], name) {
    Object.assign(this, { directory, issuer });
    this.tls = `pulsar+ssl://localhost:${tlsPort}`;
    this.unnamed = `pulsar+ssl://127.0.0.2:${tlsPort}`;
    this.plain = `pulsar://localhost:${plainPort}`;
    this.topic = `persistent://public/default/${prefix}-${name}`;
  }

  path(name) {
    return path.join(this.directory, name);
  }

  read(name) {
    return fs.readFileSync(this.path(name), 'utf8');
  }

  token(name) {
    return new Pulsar.AuthenticationToken({ token: this.read(`${name}.token`) });
  }

  client(authentication, { url = this.tls, names = false } = {}) {
    const client = new Pulsar.Client({
      serviceUrl: url,
      ...(authentication ? { authentication } : {}),
      operationTimeoutSeconds: 10,
      tlsTrustCertsFilePath: this.path('ca.pem'),
      tlsValidateHostname: names,
      logLevel: Pulsar.LogLevel.ERROR,
      log: (level, file, line, message) => process.stderr.write(`${file}:${line} ${message}\n`),
    });
    kept.push(client);
    return client;
  }

  /** Send and receive messages in turns. */
  async exchange(authentication, { messages = 10, pause = 0, ...options } = {}) {
    const client = this.client(authentication, options);
    try {
      const consumer = await client.subscribe({
        topic: this.topic, subscription: 'sub', subscriptionInitialPosition: 'Earliest',
      });
      const producer = await client.createProducer({ topic: this.topic, batchingEnabled: false });
      for (let number = 0; number < messages; number += 1) {
        await producer.send({ data: Buffer.from(String(number)) });
        const message = await consumer.receive(RECEIVE_MILLISECONDS);
        assert.equal(message.getData().toString(), String(number), 'the next message');
        await consumer.acknowledge(message);
        if (pause) await sleep(pause);
      }
    } finally {
      await client.close();
    }
  }

  /** Fail unless a producer is refused with an error of that text. */
  async refused(text, authentication, options = {}) {
    const client = this.client(authentication, options);
    try {
      await assert.rejects(client.createProducer({ topic: this.topic }), text);
    } finally {
      await client.close();
    }
  }
}

const scenarios = {
  'token-tls': (scene) => scene.exchange(scene.token('alice')),
  'token-plain': (scene) => scene.exchange(scene.token('alice'), { url: scene.plain }),
  'basic-tls': (scene) => scene.exchange(
    new Pulsar.AuthenticationBasic({ username: USER, password: scene.read('bob.password') }),
  ),
  certificate: (scene) => scene.exchange(new Pulsar.AuthenticationTls({
    certificatePath: scene.path('carol.cert.pem'), privateKeyPath: scene.path('carol.key.pem'),
  })),
  'name-right': (scene) => scene.exchange(scene.token('alice'), { names: true }),
  'name-wrong': async (scene) => {
    await scene.refused(/ConnectError|TimeOut/, scene.token('alice'), { url: scene.unnamed, names: true });
    await scene.exchange(scene.token('alice'), { url: scene.unnamed });
  },
  'token-forged': (scene) => scene.refused(UNAUTHENTICATED, scene.token('forged')),
  'no-credentials': (scene) => scene.refused(UNAUTHENTICATED),
  'no-right': (scene) => scene.refused(/AuthorizationError/, scene.token('mallory')),
  'token-renewed': (scene) => scene.exchange(
    new Pulsar.AuthenticationToken({ token: () => scene.read('supplied.token') }),
    { messages: RENEWED_MESSAGES, pause: RENEWED_PAUSE_MILLISECONDS },
  ),
  oauth2: (scene) => scene.exchange(new Pulsar.AuthenticationOauth2({
    type: 'client_credentials',
    issuer_url: scene.issuer,
    private_key: `file://${scene.path('oauth2.json')}`,
    audience: AUDIENCE,
  })),
};

async function main(given) {
  for (const name of given.slice(5)) {
    say('begin', name);
    try {
      await scenarios[name](new Scene(given, name));
      say('pass', name);
    } catch (error) {
      say('fail', name, String(error.message).replace(/\s+/g, ' ').slice(0, 500));
    }
  }
  process.exit(0);
}

main(process.argv.slice(2));
