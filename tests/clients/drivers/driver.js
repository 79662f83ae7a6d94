// The Node client as a driver, with those commands of driver.py that the tests of TLS and tokens use.
//
// pulsar-flex has tokens, but no TLS. A client with `trust` gets TLS sockets of Node instead of plain ones, and all of
// them connect to its service URL: the client reads the address without TLS from the response to a lookup.
'use strict';

const { AsyncLocalStorage } = require('async_hooks');
const fs = require('fs');
const net = require('net');
const readline = require('readline');
const tls = require('tls');
const { Consumer, Producer, logLevel } = require('pulsar-flex');

const clients = new Map();
const producers = new Map();
const consumers = new Map();
/** The client on whose behalf the current code runs. */
const current = new AsyncLocalStorage();

const plainConnect = net.connect;
net.connect = (address, connected) => {
  const client = current.getStore();
  if (!client || !client.tls) return plainConnect(address, connected);
  return tls.connect({ host: client.host, port: client.port, ...client.tls }, connected);
};

/** Messages that arrived and were not received yet, and receivers that wait for the next one. */
class Queue {
  constructor() {
    this.messages = [];
    this.receivers = [];
  }

  put(message) {
    const receiver = this.receivers.shift();
    if (receiver) receiver(message);
    else this.messages.push(message);
  }

  take() {
    if (this.messages.length) return Promise.resolve(this.messages.shift());
    return new Promise((resolve) => this.receivers.push(resolve));
  }
}

function fullName(topic) {
  return topic.includes('://') ? topic : `persistent://public/default/${topic}`;
}

/** The client repeats what fails without a limit: the driver has one. */
function within(milliseconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error('no response'), { name: 'Timeout' })), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function optionsOf(client, topic) {
  return {
    topic: fullName(topic),
    discoveryServers: [`${client.host}:${client.port}`],
    jwt: client.token && fs.readFileSync(client.token, 'utf8').trim(),
    logLevel: logLevel.NOTHING,
  };
}

const verbs = {
  async client(of) {
    const url = new URL(of.url);
    const content = (path) => path && fs.readFileSync(path);
    clients.set(of.key, {
      host: url.hostname,
      port: Number(url.port),
      timeout: Number(of.timeout_ms),
      token: of.token_file,
      tls: url.protocol === 'pulsar+ssl:' && {
        ca: content(of.trust),
        cert: content(of.certificate),
        key: content(of.private_key),
      },
    });
    return '';
  },

  async producer(of) {
    const client = clients.get(of.client);
    const made = new Producer({
      ...optionsOf(client, of.topic),
      producerAccessMode: Producer.ACCESS_MODES.SHARED,
    });
    await current.run(client, () => within(client.timeout, made.create()));
    producers.set(of.key, { client, made });
    return '';
  },

  async send(of) {
    const { client, made } = producers.get(of.key);
    await within(client.timeout, made.sendMessage({ payload: of.payload, properties: {} }));
    return '';
  },

  async subscribe(of) {
    const client = clients.get(of.client);
    const queue = new Queue();
    const made = new Consumer({
      ...optionsOf(client, of.topic),
      subscription: of.subscription,
      subType: Consumer.SUB_TYPES.EXCLUSIVE,
      consumerName: of.key,
      initialPosition: Consumer.INITIAL_POSITION.EARLIEST,
    });
    await current.run(client, () => within(client.timeout, made.subscribe()));
    await made.run({ onMessage: async (message) => queue.put(message), autoAck: false });
    consumers.set(of.key, { client, queue });
    return '';
  },

  async receive(of) {
    const { client, queue } = consumers.get(of.key);
    const message = await within(Number(of.timeout_ms), queue.take());
    await within(client.timeout, message.ack());
    return `\tpayload=${Buffer.from(message.message)}`;
  },
};

async function carryOut(number, verb, of) {
  let answer;
  try {
    answer = `ok${await verbs[verb](of)}`;
  } catch (problem) {
    const text = String(problem.message).replace(/\s+/g, ' ');
    answer = `error\t${problem.name}\t${text}`;
  }
  process.stdout.write(`${number}\t${answer}\n`);
}

readline
  .createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [number, verb, ...pairs] = line.split('\t');
    const of = Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));
    carryOut(number, verb, of);
  })
  .on('close', () => process.exit());
