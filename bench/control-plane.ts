/**
 * What the control plane costs as it grows: the real tick, shard event, heartbeat and so on over the embedded store, at several
 * sizes, each in a process of its own. Prints time, operations as Firestore and Cloud Storage bill them, the memory of the
 * process, and how each grew against the size before: `npm run bench:control-plane -- --help`.
 */
import {spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {Command} from 'commander';
import type {Ended} from './control-plane/ends.ts';
import type {Measured} from './control-plane/measure.ts';

const SCENES = [
  'tick of a new instance',
  'tick, nothing changed',
  'tick, a tenth preempted',
  'tick, all drained',
  'tick, all gone',
  'heartbeat',
  'shard',
  'lease',
  'release',
  'stream dropped',
  '5000 shards behind',
];

/** A thousand TPUs go, each scene with so many streams in its run. */
const ENDS = [
  {verb: 'complete', name: 'a run of 100,000 streams completes', workers: 1000, streams: 100_000},
  {verb: 'fail', name: '1 % of commits fail', workers: 1000, streams: 1},
];

const {sizes, streams, latency, scenes, json} = new Command('bench:control-plane')
  .option('--sizes <workers>', 'how many workers, with commas between', '100,1000,10000')
  .option('--streams <count>', 'streams for each worker', '10')
  .option('--latency <ms>', 'what every round trip to the Store and the bucket takes', '0')
  .option('--scenes <names>', 'parts of the names of what to measure, with semicolons between', '')
  .option('--json', 'print everything as JSON')
  .parse()
  .opts<{sizes: string; streams: string; latency: string; scenes: string; json?: boolean}>();

const isChosen = (name: string) => scenes.split(';').some(part => name.includes(part));
const chosen = SCENES.filter(isChosen);
const folder = mkdtempSync(join(tmpdir(), 'gleaner-bench-'));
const results: (Measured & {workers: number; streams: number})[] = [];

/** As in a function of 512 MiB: without a limit Node grows its heap instead of collecting it. */
const HEAP = ['--max-old-space-size=128', '--max-semi-space-size=8'];

function measure(...args: string[]): string {
  return inProcess('./control-plane/measure.ts', ...args);
}

function inProcess(module: string, ...args: string[]): string {
  const script = fileURLToPath(new URL(module, import.meta.url));
  const {status, stdout} = spawnSync(process.execPath, [...HEAP, script, ...args], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Error(`Failed to measure ${args.join(' ')}: the process ended with ${status}`);
  return stdout;
}

const ratio = (now: number, before: number | undefined) =>
  before ? `×${(now / before).toFixed(1)}` : before === undefined ? '' : '-';

function line(one: (typeof results)[number], before: (typeof results)[number] | undefined): string {
  const {seconds, usage, bucket, published, peak_mb} = one;
  const cells = [
    one.workers.toString().padStart(7),
    `${(seconds * 1000).toFixed(1)} ms ${ratio(seconds, before?.seconds)}`.padStart(20),
    `${usage.reads.toFixed(1)} ${ratio(usage.reads, before?.usage.reads)}`.padStart(16),
    `${usage.writes.toFixed(1)} ${ratio(usage.writes, before?.usage.writes)}`.padStart(14),
    `${usage.transactions.toFixed(0)}`.padStart(7),
    `${bucket.class_a.toFixed(1)}`.padStart(8),
    `${bucket.class_b.toFixed(1)}`.padStart(8),
    `${published.toFixed(0)}`.padStart(7),
    `${usage.most_writes} (${(usage.most_bytes / 1024).toFixed(0)} KiB)`.padStart(16),
    `${peak_mb.toFixed(0)} MB ${ratio(peak_mb, before?.peak_mb)}`.padStart(12),
  ];
  return cells.join(' ');
}

function lineOfEnd({what, ticks, first_delete_s, last_delete_s, deletes, ...of}: Ended): string {
  const told = deletes.filter(count => count > 0).join(', ');
  return [
    `\n${what}: ${ticks} ticks, the longest ${of.longest_s.toFixed(1)} s, none with more than ${of.longest_cpu_s.toFixed(1)} s of processor time`,
    `TPUs told to go by tick: ${told}; the first after ${first_delete_s.toFixed(2)} s, the last after ${last_delete_s.toFixed(2)} s`,
    `peak heap ${of.peak_heap_mb.toFixed(0)} MB of 128 MB, process ${of.peak_mb.toFixed(0)} MB`,
  ].join('\n  ');
}

const ends: Ended[] = [];
try {
  for (const {verb, workers, streams, name} of ENDS.filter(({name}) => isChosen(name))) {
    const args = [join(folder, `${verb}.sqlite`), String(workers), String(streams), latency];
    inProcess('./control-plane/ends.ts', 'build', ...args);
    ends.push({...JSON.parse(inProcess('./control-plane/ends.ts', verb, ...args)), what: name});
  }
  for (const workers of chosen.length > 0 ? sizes.split(',').map(Number) : []) {
    const size = [String(workers), String(workers * Number(streams))];
    const file = join(folder, `${workers}.sqlite`);
    measure('build', file, ...size, '0');
    for (const scene of chosen) {
      const measured: Measured = JSON.parse(measure('measure', file, ...size, latency, scene));
      results.push({...measured, workers, streams: workers * Number(streams)});
      if (!json) process.stderr.write(`${workers} workers: ${scene} ${measured.seconds.toFixed(3)} s\n`);
    }
  }
} finally {
  rmSync(folder, {recursive: true, force: true});
}
if (json) console.log(JSON.stringify([...results, ...ends]));
else {
  for (const scene of chosen) {
    console.log(
      `\n${scene}\nworkers                 time            reads         writes  trans. class A   class B  publ.   largest commit         peak`,
    );
    const rows = results.filter(({what}) => what === scene);
    for (const [index, row] of rows.entries()) console.log(line(row, rows[index - 1]));
  }
  for (const end of ends) console.log(lineOfEnd(end));
}
