/**
 * Weighs the pages of a large deployment: `npm run bench:dashboard`. Prints for each page the bytes and the milliseconds of a core of its first view, the
 * documents that it reads, and the documents and bytes of a minute of an open page at a poll every 5 s.
 */
import {Command} from 'commander';
import {unaged} from '../dashboard/router.ts';
import {UNIT_PRICES} from '../shared/domain/billing/unit-prices.ts';
import {streamId} from '../shared/domain/names.ts';
import {openSqliteStore} from '../shared/embedded/sqlite-store.ts';
import {somePages} from '../test/support/machine/dashboard.ts';
import {aConfig, aRun, aStream, aWorker} from '../test/world/builders.ts';
import {putAll} from './control-plane/scene.ts';

const START_MS = Date.parse('2026-01-02T03:04:05.000Z');
const at = (seconds: number) => new Date(START_MS + seconds * 1000).toISOString();
const PAGES = [
  '/',
  '/fleet',
  '/runs/small',
  '/runs/large',
  '/runs/huge',
  '/tpus/tpu-us-central1-a-0',
  '/jobs',
  '/events',
];
const POLLS = 12;
const MONTH_MINUTES = 30 * 24 * 60;

const {workers, changes} = new Command('bench:dashboard')
  .option('--workers <n>', 'living TPUs', Number, 1000)
  .option('--changes <n>', 'TPUs and streams that change in a minute', Number, 20)
  .parse()
  .opts<{workers: number; changes: number}>();

const cpuMs = () => process.cpuUsage().user / 1000 + process.cpuUsage().system / 1000;
const RUNS = {small: 100, large: 10_000, huge: 100_000};

const zones = ['us-central1-a', 'us-east5-b', 'europe-west4-b', 'us-west4-a'];
const nameOf = (index: number) => `tpu-${zones[index % 4]}-${Math.floor(index / 4)}`;

function workerOf(index: number, changed_s: number): [string, object] {
  const name = nameOf(index);
  const times = {
    phase_since_at: at(changed_s),
    updated_at: at(changed_s),
    ready_at: at(0),
    heartbeat_at: at(changed_s),
  };
  const work = {
    work: `huge/${streamId(50_000 + index)}`,
    activity: 'running',
    tokens_per_s: 1234.5,
    samples_done: 40 + (Math.max(0, changed_s) % 59),
    samples_total: 100,
  };
  return [`workers/${name}`, aWorker({name, phase: 'working', usd_per_hour: 1.2, ...times, ...work})];
}

/** The first half is complete; as many as TPUs are at work. */
function streamOf(run: string, index: number, total: number, changed_s = -index): [string, object] {
  const isDone = index < total / 2;
  const isBusy = !isDone && index < total / 2 + (run === 'huge' ? workers : 20);
  const lease = {worker: nameOf(index % workers), incarnation: 1, epoch: 1};
  const stored = {
    total_samples_processed: 100,
    total_tokens: 50_000,
    total_shards: 4,
    last_processed_sample_idx: 99,
  };
  const stream = aStream({
    ...{
      run,
      stream: streamId(index),
      worker_id: index,
      updated_at: at(changed_s),
      object: `datasets/${run}/stream_${streamId(index)}.jsonl`,
    },
    ...(isDone
      ? {status: 'completed', finished: true, ...stored}
      : isBusy
        ? {status: 'in_progress', lease, epoch: 1}
        : {}),
  });
  return [`runs/${run}/streams/${streamId(index)}`, stream];
}

function* documents(): Generator<[path: string, data: object]> {
  for (let index = 0; index < workers; index++) yield workerOf(index, -10 * index);
  for (const [run, total] of Object.entries(RUNS)) {
    const busy = run === 'huge' ? workers : 20;
    const counts = {
      streams_completed: total / 2,
      streams_in_progress: busy,
      streams_pending: total / 2 - busy,
    };
    const totals = {
      total_samples_processed: total * 50,
      total_tokens: total * 25_000,
      total_shards: total * 2,
      cost_usd: 123.4,
    };
    yield [`runs/${run}`, aRun({run, ...counts, ...totals})];
    for (let index = 0; index < total; index++) yield streamOf(run, index, total);
  }
  yield ['pools/tpu', {...aConfig().pool, zones, workers_per_zone: workers / 4}];
  for (let index = 0; index < 1000; index++) {
    const text = `${nameOf(index)} works on huge/${streamId(index)} from sample 0`;
    const about = {kind: 'worker', worker: nameOf(index), run: 'huge'};
    yield [`events/${index}`, {...about, text, at: at(-10 * index), expire_at: at(1e7)}];
  }
}

/** TPUs and streams that change between two polls. */
function* changed(from: number, count: number, second: number): Generator<[path: string, data: object]> {
  for (let index = from; index < from + count; index++) {
    yield workerOf(index, second);
    yield streamOf('huge', 50_000 + index, RUNS.huge, second);
  }
}

/** Bytes of the sections that differ, as an open page gets them. */
function changedBytes(before: string, text: string): number {
  const sections = (page: string) => [...page.matchAll(/<section id="([^"]+)">([\s\S]*?)<\/section>\n/g)];
  const known = new Map(sections(before).map(([, id, html = '']) => [id, unaged(html)]));
  return sections(text)
    .filter(([, id, html = '']) => known.get(id) !== unaged(html))
    .reduce((sum, [, id, html]) => sum + Buffer.byteLength(JSON.stringify({id, html})), 0);
}

const store = openSqliteStore(':memory:', () => 0.5);
await putAll(store, documents());
console.log(
  'page                          kB    ms   reads   ms a poll   kB a minute   reads a minute   $ a month',
);
let now = START_MS + 60_000;
for (const path of PAGES) {
  const pages = somePages(store, () => now);
  const begun = cpuMs();
  const {status, text} = await pages.get(path);
  const first_ms = cpuMs() - begun;
  if (status !== 200) throw new Error(`${path} answered ${status}: ${text}`);
  const first_reads = pages.reads();
  let [poll_ms, bytes, last] = [0, 0, text];
  for (let poll = 1; poll <= POLLS; poll++) {
    now += 5000;
    const second = (now - START_MS) / 1000;
    const some = Math.round((changes * poll) / POLLS) - Math.round((changes * (poll - 1)) / POLLS);
    await putAll(store, changed(poll * 10, some, second));
    const from = cpuMs();
    const shown = await pages.get(path);
    poll_ms += cpuMs() - from;
    bytes += changedBytes(last, shown.text);
    last = shown.text;
  }
  const reads = pages.reads() - first_reads;
  const usd = reads * MONTH_MINUTES * UNIT_PRICES.firestore_read;
  const cells = [
    (text.length / 1000).toFixed(0).padStart(6),
    first_ms.toFixed(0).padStart(6),
    String(first_reads).padStart(8),
  ];
  console.log(
    path.padEnd(26),
    ...cells,
    (poll_ms / POLLS).toFixed(0).padStart(11),
    (bytes / 1000).toFixed(0).padStart(13),
    String(reads).padStart(16),
    usd.toFixed(2).padStart(11),
  );
}
await store.close();
