// Consumers, key-value buckets and object stores through nats.js. Prints "ok NAME" or "FAIL NAME:
// why" for each check.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect, nanos } from "@nats-io/transport-node";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";

const WAIT_MS = 5000;

async function streamed(name, count, body) {
  const nc = await connect({ servers: process.env.INTEROP_STREAMS, reconnectTimeWait: 50, maxReconnectAttempts: -1 });
  const js = jetstream(nc);
  const jsm = await jetstreamManager(nc);
  if (name) await jsm.streams.add({ name, subjects: [`${name}.>`] });
  for (let n = 0; n < count; n++) await js.publish(`${name}.${n % 3}`, `${n}`);
  try {
    await body(js, jsm, nc);
  } finally {
    if (name) await jsm.streams.delete(name);
    await nc.close();
  }
}

async function made(js, jsm, stream, config) {
  const info = await jsm.consumers.add(stream, config);
  return js.consumers.get(stream, info.name);
}

const explicit = { durable_name: "worker", ack_policy: AckPolicy.Explicit };

function fetch() {
  return streamed("fetch", 25, async (js, jsm) => {
    const consumer = await made(js, jsm, "fetch", explicit);
    let count = 0;
    while (count < 25) {
      for await (const msg of await consumer.fetch({ max_messages: 10, expires: 1000 })) {
        assert.equal(msg.string(), `${count++}`);
        await msg.ackAck();
      }
    }
    const info = await consumer.info();
    assert.deepEqual([info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq], [0, 0, 25]);
    assert.equal(await consumer.next({ expires: 1000 }), null);
  });
}

function consume() {
  return streamed("consume", 500, async (js, jsm) => {
    const consumer = await made(js, jsm, "consume", explicit);
    const messages = await consumer.consume({ max_messages: 50 });
    let count = 0;
    for await (const msg of messages) {
      assert.equal(msg.string(), `${count++}`);
      msg.ack();
      if (count === 500) for (let n = 500; n < 600; n++) await js.publish("consume.x", `${n}`);
      if (count === 600) break;
    }
  });
}

function push() {
  return streamed("push", 10, async (js, jsm) => {
    await jsm.consumers.add("push", {
      durable_name: "d", deliver_subject: "push_to", ack_policy: AckPolicy.Explicit,
      idle_heartbeat: nanos(1000), flow_control: true,
    });
    const consumer = await js.consumers.getPushConsumer("push", "d");
    const messages = await consumer.consume();
    await js.publish("push.x", "10");
    let count = 0;
    for await (const msg of messages) {
      assert.equal(msg.string(), `${count++}`);
      msg.ack();
      if (count === 11) break;
    }
  });
}

function redelivery() {
  return streamed("again", 2, async (js, jsm) => {
    const consumer = await made(js, jsm, "again", { ...explicit, ack_wait: nanos(300), max_deliver: 4 });
    const one = await consumer.next();
    (await consumer.next()).term("no use");
    one.nak(50);
    const second = await consumer.next();
    assert.deepEqual([second.seq, second.info.deliveryCount], [1, 2]);
    const third = await consumer.next();
    assert.deepEqual([third.seq, third.info.deliveryCount], [1, 3]);
    await third.ackAck();
    assert.equal((await consumer.info()).num_ack_pending, 0);
  });
}

function ordered() {
  return streamed("ordered", 500, async (js) => {
    const messages = await (await js.consumers.get("ordered")).consume();
    let count = 0;
    for await (const msg of messages) {
      assert.equal(msg.string(), `${count++}`);
      if (count === 500) break;
    }
    const some = await js.consumers.get("ordered", { filter_subjects: ["ordered.0", "ordered.2"] });
    let filtered = 0;
    for await (const _ of await some.fetch({ max_messages: 10, expires: 2000 })) filtered++;
    assert.equal(filtered, 10);
  });
}

function ordered_restart() {
  return streamed("restarted", 10, async (js) => {
    const messages = await (await js.consumers.get("restarted")).consume({ idle_heartbeat: 500, expires: 2000 });
    let count = 0;
    for await (const msg of messages) {
      assert.equal(msg.string(), `${count++}`);
      if (count === 20) break;
      if (count < 10) continue;
      if (count > 10) continue;
      console.log("restart streams");
      for (let n = 10; n < 20; n++) {
        for (let tries = 0; tries < 100; tries++) {
          try {
            await js.publish("restarted.x", `${n}`, { msgID: `${n}`, timeout: 500 });
            break;
          } catch {
            await new Promise((go) => setTimeout(go, 50));
          }
        }
      }
    }
  });
}

function kv() {
  return streamed("", 0, async (_js, jsm, nc) => {
    const bucket = await new Kvm(nc).create("kv", { history: 3 });
    assert.equal(await bucket.put("a", "1"), 1);
    assert.equal(await bucket.update("a", "2", 1), 2);
    await assert.rejects(bucket.update("a", "x", 1));
    await bucket.create("b", "new");
    await assert.rejects(bucket.create("b", "new"));
    assert.equal((await bucket.get("a", { revision: 1 })).string(), "1");
    await bucket.put("a", "3");
    await bucket.put("a", "4");
    const values = [];
    for await (const entry of await bucket.history({ key: "a" })) values.push(entry.string());
    assert.deepEqual(values, ["2", "3", "4"]);
    await bucket.delete("b");
    assert.equal((await bucket.get("b")).operation, "DEL");
    await bucket.create("b", "again");
    await bucket.purge("a");
    const keys = [];
    for await (const key of await bucket.keys()) keys.push(key);
    assert.deepEqual(keys, ["b"]);
    assert.equal((await bucket.status()).history, 3);
    await bucket.destroy();
  });
}

function kv_watch() {
  return streamed("", 0, async (_js, _jsm, nc) => {
    const bucket = await new Kvm(nc).create("watched", { history: 5 });
    for (const key of ["a", "b.c", "b.d", "a"]) await bucket.put(key, key);
    const seen = async (options, wanted) => {
      const got = [];
      const iterator = await bucket.watch(options);
      for await (const entry of iterator) {
        got.push(entry.key);
        if (got.length === 2) await bucket.put("b.c", "more");
        if (got.length === wanted.length) break;
      }
      assert.deepEqual(got, wanted);
    };
    await seen({ key: "b.*" }, ["b.c", "b.d", "b.c"]);
    await seen({ include: "history" }, ["a", "b.c", "b.d", "a", "b.c", "b.c"]);
    await bucket.destroy();
  });
}

function objects() {
  return streamed("", 0, async (_js, _jsm, nc) => {
    const store = await new Objm(nc).create("objects");
    const data = randomBytes(700_000);
    const info = await store.putBlob({ name: "file" }, data);
    assert.equal(info.chunks, 6);
    assert.ok(data.equals(await store.getBlob("file")));
    await store.link("link", info);
    assert.equal((await store.getBlob("link")).length, 700_000);
    await store.delete("file");
    assert.equal((await store.list()).length, 1);
    await store.seal();
    assert.ok((await store.status()).sealed);
    await store.destroy();
  });
}

const checks = [
  fetch, consume, push, redelivery, ordered, ordered_restart, kv, kv_watch, objects,
];
for (const check of checks) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error("too slow")), 5 * WAIT_MS);
  });
  try {
    await Promise.race([check(), late]);
    console.log(`ok ${check.name}`);
  } catch (error) {
    console.log(`FAIL ${check.name}: ${String(error.stack).replaceAll("\n", " ")}`);
  }
  clearTimeout(timer);
}
process.exit(0);
