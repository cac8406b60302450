// Ordinary features through nats.js. Prints "ok NAME" or "FAIL NAME: why" for each check.
import assert from "node:assert";
import { randomBytes } from "node:crypto";
import { connect, headers as newHeaders, errors } from "@nats-io/transport-node";

const env = process.env;
const WAIT_MS = 5000;

const dial = (options = {}) => connect({ servers: env.INTEROP_PLAIN, ...options });
const locked = (pass, options = {}) =>
  connect({ servers: env.INTEROP_LOCKED, user: "app", pass, ...options });

/** The next `count` messages of a subscription. */
async function take(sub, count) {
  const got = [];
  const timer = setTimeout(() => sub.unsubscribe(), WAIT_MS);
  if (count > 0) {
    for await (const msg of sub) {
      got.push(msg);
      if (got.length === count) break;
    }
  }
  clearTimeout(timer);
  assert.equal(got.length, count, "messages");
  return got;
}

async function status(nc, wanted) {
  for await (const event of nc.status()) {
    if (event.type === wanted) return event;
  }
  throw new Error(`no ${wanted}`);
}

async function connect_info() {
  const nc = await dial({ name: "interop" });
  assert.equal(nc.info.max_payload, 1048576);
  assert.ok(nc.info.client_id > 0 && nc.info.headers && nc.info.server_id.startsWith("N"));
  await nc.close();
}

async function publish_subscribe() {
  const nc = await dial();
  const sub = nc.subscribe("pubsub.one");
  nc.publish("pubsub.one", "hello", { reply: "back" });
  const [msg] = await take(sub, 1);
  assert.deepEqual([msg.subject, msg.reply, msg.string()], ["pubsub.one", "back", "hello"]);
  await nc.close();
}

async function wildcards() {
  const nc = await dial();
  const star = nc.subscribe("wild.*.x");
  const tail = nc.subscribe("wild.>");
  nc.publish("wild.a.x", "1");
  nc.publish("wild.a.b.x", "2");
  assert.deepEqual((await take(tail, 2)).map((m) => m.string()), ["1", "2"]);
  assert.deepEqual((await take(star, 1)).map((m) => m.string()), ["1"]);
  assert.equal(star.getPending(), 0);
  await nc.close();
}

async function queue_group() {
  const nc = await dial();
  const counts = [0, 0, 0];
  counts.forEach((_, index) =>
    nc.subscribe("jobs", { queue: "workers", callback: () => counts[index]++ }));
  for (let n = 0; n < 300; n++) nc.publish("jobs", "x");
  await nc.flush();
  assert.equal(counts[0] + counts[1] + counts[2], 300);
  assert.ok(Math.min(...counts) > 0, counts.join());
  await nc.close();
}

async function request_reply() {
  const nc = await dial();
  nc.subscribe("service", { callback: (_, msg) => msg.respond(msg.string().toUpperCase()) });
  const asked = Array.from({ length: 50 }, (_, n) => nc.request("service", `q${n}`));
  const answers = (await Promise.all(asked)).map((m) => m.string());
  assert.deepEqual(answers, Array.from({ length: 50 }, (_, n) => `Q${n}`));
  await nc.close();
}

async function headers() {
  const nc = await dial();
  const sub = nc.subscribe("headed");
  const head = newHeaders();
  head.append("Key", "one");
  head.append("Key", "two");
  nc.publish("headed", "body", { headers: head });
  const [msg] = await take(sub, 1);
  assert.deepEqual(msg.headers.values("Key"), ["one", "two"]);
  assert.equal(msg.string(), "body");
  await nc.close();
}

async function no_responders() {
  const nc = await dial();
  await assert.rejects(nc.request("nobody.here", "?", { timeout: WAIT_MS }), (error) => {
    assert.ok(error instanceof errors.RequestError && error.isNoResponders(), String(error));
    return true;
  });
  await nc.close();
}

async function unsubscribe_max() {
  const nc = await dial();
  const sub = nc.subscribe("limited", { max: 3 });
  for (let n = 0; n < 5; n++) nc.publish("limited", "x");
  await nc.flush();
  let got = 0;
  for await (const _ of sub) got++;
  assert.equal(got, 3);
  await nc.close();
}

async function drain() {
  const nc = await dial();
  let got = 0;
  nc.subscribe("drained", { callback: () => got++ });
  for (let n = 0; n < 100; n++) nc.publish("drained", "x");
  await nc.drain();
  assert.equal(got, 100);
  assert.ok(nc.isClosed());
}

async function large_message() {
  const nc = await dial();
  const sub = nc.subscribe("large");
  const data = randomBytes(1048576);
  nc.publish("large", data);
  const [msg] = await take(sub, 1);
  assert.ok(data.equals(msg.data));
  await nc.close();
}

async function max_payload() {
  const nc = await locked("secret");
  assert.equal(nc.info.max_payload, 1024);
  assert.throws(() => nc.publish("app.x", new Uint8Array(1025)));
  await nc.close();
}

async function flush_rtt() {
  const nc = await dial();
  for (let n = 0; n < 10; n++) {
    nc.publish("flushed", "x");
    await nc.flush();
  }
  assert.ok((await nc.rtt()) >= 0);
  await nc.close();
}

async function auth_refused() {
  await assert.rejects(locked("wrong", { reconnect: false }), errors.AuthorizationError);
}

async function permissions() {
  const nc = await locked("secret");
  const failed = status(nc, "error");
  nc.publish("other.x", "x");
  const event = await failed;
  assert.ok(event.error instanceof errors.PermissionViolationError, String(event.error));
  assert.equal(event.error.subject, "other.x");
  const sub = nc.subscribe("app.x");
  nc.publish("app.x", "still here");
  await take(sub, 1);
  await nc.close();
}

async function tls() {
  const nc = await connect({ servers: env.INTEROP_TLS, tls: { caFile: env.INTEROP_CA } });
  const sub = nc.subscribe("secret");
  nc.publish("secret", new Uint8Array(100_000));
  const [msg] = await take(sub, 1);
  assert.equal(msg.data.length, 100_000);
  await nc.close();
}

async function reconnect() {
  const nc = await connect({ servers: env.INTEROP_RESTARTED, reconnectTimeWait: 50, maxReconnectAttempts: -1 });
  const sub = nc.subscribe("after.restart");
  await nc.flush();
  const again = status(nc, "reconnect");
  console.log("restart");
  await again;
  nc.publish("after.restart", "again");
  await take(sub, 1);
  await nc.close();
}

const checks = [
  connect_info, publish_subscribe, wildcards, queue_group, request_reply, headers, no_responders,
  unsubscribe_max, drain, large_message, max_payload, flush_rtt, auth_refused, permissions, tls,
  reconnect,
];
for (const check of checks) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error("too slow")), 3 * WAIT_MS);
  });
  try {
    await Promise.race([check(), late]);
    console.log(`ok ${check.name}`);
  } catch (error) {
    console.log(`FAIL ${check.name}: ${String(error).replaceAll("\n", " ")}`);
  }
  clearTimeout(timer);
}
process.exit(0);
