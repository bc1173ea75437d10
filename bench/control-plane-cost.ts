/**
 * Dollars an hour of the control plane, from counted operations and list prices:
 * `npm run --silent bench:control-plane -- --json > counted.json` and then `npm run bench:control-plane-cost -- counted.json`.
 */
import {readFileSync} from 'node:fs';
import {Command} from 'commander';
import {LIST_PRICES} from '../shared/domain/billing/list-prices.ts';
import {LONGEST_QUIET_TICK_S} from './control-plane/limits.ts';
import {costOf, HOURS_A_MONTH, PRICES, sumOf} from './control-plane/prices.ts';
import type {Report} from './control-plane/report.ts';

const command = new Command('bench:control-plane-cost')
  .argument('<counted>', 'the output of bench:control-plane --json')
  .option('--workers <count>', 'which of the sizes', '10000')
  .option('--heartbeat <s>', 'seconds between two heartbeats of a worker', '60')
  .option('--shards <count>', 'shards that a worker stores in an hour', '12')
  .option('--streams <count>', 'streams that a worker finishes in an hour', '1')
  .option('--lives <count>', 'times that a worker is lost and made again in an hour', '0.1')
  .option('--audit <s>', 'seconds between two resyncs of the bucket', '900')
  .option('--instance <ms>', 'how long a request keeps a vCPU with 0.5 GiB to itself', '10')
  .option('--log <bytes>', 'what the log takes of each request; heartbeats are excluded', '1000')
  .parse();
const [file = ''] = command.args;
const {workers, heartbeat, shards, streams, lives, audit, instance, log} =
  command.opts<Record<string, string>>();

const {scenes}: Report = JSON.parse(readFileSync(file, 'utf8'));
const n = Number(workers);

function counted(what: string) {
  const found = scenes.find(each => each.what === what && each.workers === n);
  if (!found) throw new Error(`${file} has no "${what}" at ${n} workers`);
  return found;
}

/**
 * Ticks that wakes begin one after another, as shared/control-plane/tick-queue.ts has it. Their request stays open. A tick takes as
 * long as a quiet tick may take: the number of ticks depends on no machine.
 */
const QUIET = 'tick, nothing changed';
const cycle_s = LONGEST_QUIET_TICK_S + Math.max(10, 5 * LONGEST_QUIET_TICK_S);
const wakes = n * Number(streams) * (counted('stream dropped').published + counted('release').published);
const areTicksWoken = wakes > 3600 / cycle_s;

type Event = {what: string; an_hour: number; is_message: boolean; is_logged: boolean; busy_s?: number};

/** Events in an hour. Each message that an event publishes is a request more. */
const EVENTS: Event[] = [
  {what: 'heartbeat', an_hour: (n * 3600) / Number(heartbeat), is_message: false, is_logged: false},
  {what: 'shard', an_hour: n * Number(shards), is_message: true, is_logged: true},
  {what: 'lease', an_hour: n * (Number(streams) + Number(lives)), is_message: false, is_logged: true},
  {what: 'release', an_hour: n * Number(streams), is_message: false, is_logged: true},
  {what: 'stream dropped', an_hour: n * Number(streams), is_message: true, is_logged: true},
  {
    ...{what: QUIET, is_message: true, is_logged: true},
    an_hour: areTicksWoken ? 3600 / cycle_s : 60,
    busy_s: areTicksWoken ? cycle_s : LONGEST_QUIET_TICK_S,
  },
  {what: 'resync', an_hour: 3600 / Number(audit), is_message: true, is_logged: true},
];

const hour = EVENTS.map(({what, an_hour, is_message, is_logged, busy_s}) => {
  const one = counted(what);
  const parts = costOf(one, {
    busy_s: busy_s ?? Math.max(Number(instance) / 1000, one.seconds),
    requests: 1 + one.published,
    messages: (is_message ? 1 : 0) + one.published,
    log_bytes: is_logged ? Number(log) : 0,
  });
  return {what, an_hour, usd: sumOf(parts) * an_hour, parts};
});

/** Uploads of shards are operations of the extractor. */
const uploads = n * Number(shards) * PRICES.class_a;
const total = hour.reduce((sum, {usd}) => sum + usd, PRICES.scheduler_job_month / HOURS_A_MONTH);
const tpus = n * (LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN);

for (const {what, an_hour, usd, parts} of hour) {
  const shares = Object.entries(parts).map(([part, each]) => `${part} ${(each * an_hour).toFixed(3)}`);
  console.log(
    `${what.padEnd(24)} ${an_hour.toFixed(0).padStart(8)}/h  $${usd.toFixed(3)}  (${shares.join(', ')})`,
  );
}
console.log(`control plane  $${total.toFixed(2)}/h`);
console.log(`TPUs           $${tpus.toFixed(0)}/h: ${n} v5litepod-1 in us-central1, spot`);
console.log(`share          ${((100 * total) / tpus).toFixed(4)} %`);
console.log(
  `with the shards' uploads (class A) $${(total + uploads).toFixed(2)}/h, ${((100 * (total + uploads)) / tpus).toFixed(4)} %`,
);
