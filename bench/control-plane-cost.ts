/**
 * What the control plane costs in an hour, from the operations that `bench:control-plane -- --json` has counted and a table of list
 * prices: `npm run --silent bench:control-plane -- --sizes 10000 --json > counted.json` and then
 * `npm run bench:control-plane-cost -- counted.json`.
 */
import {readFileSync} from 'node:fs';
import {Command} from 'commander';
import {LIST_PRICES} from '../shared/domain/billing/prices.ts';
import type {Measured} from './control-plane/measure.ts';

/**
 * Dollars, us-central1, written down from memory on 2026-11-21 and not checked against the price pages. Free tiers are left out.
 */
const PRICES = {
  firestore_read: 0.03 / 100_000,
  firestore_write: 0.09 / 100_000,
  firestore_delete: 0.01 / 100_000,
  request: 0.4 / 1e6,
  vcpu_s: 0.000024,
  gib_s: 0.0000025,
  class_a: 0.005 / 1000,
  class_b: 0.0004 / 1000,
  /** Of messages and events, with 1 KiB each at the least, once in and once out. */
  pubsub_gib: 40 / 1024,
  logging_gib: 0.5,
  scheduler_job_month: 0.1,
};

const command = new Command('control-plane-cost')
  .argument('<counted>', 'the output of bench:control-plane --json')
  .option('--workers <count>', 'which of the sizes', '10000')
  .option('--heartbeat <s>', 'seconds between two heartbeats of a worker', '60')
  .option('--shards <count>', 'shards that a worker stores in an hour', '12')
  .option('--streams <count>', 'streams that a worker finishes in an hour', '1')
  .option('--lives <count>', 'times that a worker is lost and made again in an hour', '0.1')
  .option('--instance <ms>', 'how long a request keeps a vCPU with 0.5 GiB to itself', '10')
  .option('--log <bytes>', 'what the log takes of each request; heartbeats are excluded', '1000')
  .parse();
const [file = ''] = command.args;
const {workers, heartbeat, shards, streams, lives, instance, log} = command.opts<Record<string, string>>();

const counted: (Measured & {workers: number})[] = JSON.parse(readFileSync(file, 'utf8'));
const n = Number(workers);

/** What each kind of event takes, and how many of them there are in an hour. */
const EVENTS = [
  {what: 'heartbeat', an_hour: (n * 3600) / Number(heartbeat), is_message: false, is_logged: false},
  {what: 'shard', an_hour: n * Number(shards), is_message: true, is_logged: true},
  {what: 'lease', an_hour: n * (Number(streams) + Number(lives)), is_message: false, is_logged: true},
  {what: 'release', an_hour: n * Number(streams), is_message: false, is_logged: true},
  {what: 'stream dropped', an_hour: n * Number(streams), is_message: true, is_logged: true},
  {what: 'tick, nothing changed', an_hour: 60, is_message: false, is_logged: true},
];

const hour = EVENTS.map(({what, an_hour, is_message, is_logged}) => {
  const one = counted.find(each => each.what === what && each.workers === n);
  if (!one) throw new Error(`${file} has no "${what}" at ${n} workers`);
  const {usage, bucket} = one;
  const gib = 1024 ** 3;
  const busy_s = Math.max(Number(instance) / 1000, one.seconds);
  const parts = {
    firestore:
      usage.reads * PRICES.firestore_read +
      // Each event of the timeline is deleted after its time.
      usage.writes * (PRICES.firestore_write + PRICES.firestore_delete / 2) +
      usage.deletes * PRICES.firestore_delete,
    storage: bucket.class_a * PRICES.class_a + bucket.class_b * PRICES.class_b,
    requests: PRICES.request,
    compute: busy_s * (PRICES.vcpu_s + 0.5 * PRICES.gib_s),
    messages: is_message ? (2 * 2048 * PRICES.pubsub_gib) / gib : 0,
    logs: is_logged ? (Number(log) * PRICES.logging_gib) / gib : 0,
  };
  const each = Object.values(parts).reduce((sum, usd) => sum + usd, 0);
  return {what, an_hour, usd: each * an_hour, parts};
});

/** A shard's own upload is the extractor's, and is shown beside. */
const uploads = n * Number(shards) * PRICES.class_a;
const scheduler = PRICES.scheduler_job_month / 730;
const total = hour.reduce((sum, {usd}) => sum + usd, scheduler);
const tpus = n * (LIST_PRICES.v5litepod?.spot_usd ?? Number.NaN);

for (const {what, an_hour, usd, parts} of hour) {
  const shares = Object.entries(parts).map(([part, each]) => `${part} ${(each * an_hour).toFixed(3)}`);
  console.log(
    `${what.padEnd(24)} ${an_hour.toFixed(0).padStart(8)}/h  $${usd.toFixed(3)}  (${shares.join(', ')})`,
  );
}
console.log(`control plane  $${total.toFixed(2)}/h`);
console.log(`TPUs           $${tpus.toFixed(0)}/h: ${n} v5litepod-1, spot`);
console.log(`share          ${((100 * total) / tpus).toFixed(4)} %`);
console.log(
  `with the shards' uploads (class A) $${(total + uploads).toFixed(2)}/h, ${((100 * (total + uploads)) / tpus).toFixed(4)} %`,
);
