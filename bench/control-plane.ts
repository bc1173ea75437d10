/** Costs of the control plane as it grows, and their limits: `npm run bench:control-plane -- --help`. */
import {spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {Command} from 'commander';
import {SCENES} from './control-plane/event-scenes.ts';
import {checkLimits, LIMITED_SCENES, limitLines, MAIN} from './control-plane/limits.ts';
import {type Figures, MANY_SCENES} from './control-plane/many-runs.ts';
import {costsOf, PRICED} from './control-plane/prices.ts';
import {print, type Report, type Row} from './control-plane/report.ts';
import {RUNS, type Size} from './control-plane/scene.ts';
import type {Ended, Measured} from './control-plane/scene-work.ts';

/** A thousand TPUs go, and their run has so many streams. */
const ENDS = [
  {verb: 'complete', name: 'a run of 100,000 streams completes', workers: 1000, streams: 100_000},
  {verb: 'fail', name: '1 % of commits fail', workers: 1000, streams: 1},
];

const STREAMS_EACH = 10;
/** Enough for every scene. */
const FEWEST_WORKERS = 100;

/** As in a function of 512 MiB: without a limit Node grows its heap instead of collecting it. */
const HEAP = ['--max-old-space-size=128', '--max-semi-space-size=8'];

type Options = {
  sizes: string;
  latency: string;
  scenes: string;
  limits?: boolean;
  many?: boolean;
};

const HELP = `
Runs the real handlers over the embedded store. Each scene runs in a process of its own, on a copy of the documents of its size:
workers at work, ten streams for each, and as many gone workers. Prints time, operations as Firestore and Cloud Storage bill them,
and memory. A size is also compared with the size before.

Scenes: ${[...Object.keys(SCENES), ...ENDS.map(({name}) => name)].join('; ')}.

Limits at ${MAIN.workers.toLocaleString('en')} workers and ${MAIN.streams.toLocaleString('en')} streams (documents are reads and writes):
  ${limitLines().join('\n  ')}
The exit code is 1 if a measured figure is over its limit.

"pause" counts the command and the tick that tells the workers, without the counts of a quiet tick. "1,000 drops" lets each tick take
as long as a quiet tick may take. The time of the quiet tick is the fastest of five.`;

function optionsOf(): Options {
  return new Command('bench:control-plane')
    .description('Measures what the control plane costs as it grows, and checks the limits.')
    .option('--sizes <workers>', 'living workers, with commas between', '100,1000,10000')
    .option('--latency <ms>', 'duration of each round trip to the Store and the bucket', '0')
    .option('--scenes <names>', 'parts of the names of scenes, with semicolons between', '')
    .option(
      '--limits',
      'only the scenes with limits and those of the costs, at the main size, without the limit of seconds: other work on the machine changes no result',
    )
    .option(
      '--many',
      'only the scenes of many runs, pools, hosts and jobs, at 100 ms for each call; --scenes takes parts of their names',
    )
    .addHelpText('after', HELP)
    .parse()
    .opts<Options>();
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

function measureEnds(folder: string, {latency}: Options, isChosen: (name: string) => boolean): Ended[] {
  return ENDS.filter(({name}) => isChosen(name)).map(({verb, workers, streams, name}) => {
    const args = [join(folder, `${verb}.sqlite`), String(workers), String(streams), latency];
    inProcess('./control-plane/ends.ts', 'build', ...args);
    const ended: Ended = JSON.parse(inProcess('./control-plane/ends.ts', verb, ...args));
    process.stderr.write(`${name}\n`);
    return {...ended, what: name};
  });
}

function measureSize(folder: string, size: Size, chosen: readonly string[], latency: string): Row[] {
  const args = [join(folder, `${size.workers}.sqlite`), String(size.workers), String(size.streams)];
  inProcess('./control-plane/measure.ts', 'build', ...args, '0');
  return chosen.map((scene): Row => {
    const output = inProcess('./control-plane/measure.ts', 'measure', ...args, latency, scene);
    const measured: Measured = JSON.parse(output);
    process.stderr.write(`${size.workers} workers: ${scene} ${measured.seconds.toFixed(3)} s\n`);
    return {...measured, ...size};
  });
}

function measureAll(options: Options): Report {
  const {latency} = options;
  const isChosen = choiceOf(options);
  const chosen = Object.keys(SCENES).filter(isChosen);
  const sizes = chosen.length > 0 ? sizesOf(options) : [];
  const folder = mkdtempSync(join(tmpdir(), 'gleaner-bench-'));
  try {
    const ends = measureEnds(folder, options, isChosen);
    const rows = sizes.flatMap(size => measureSize(folder, size, chosen, latency));
    const isOf = (size: Size | undefined) => (row: Row) => row.workers === size?.workers;
    const last = sizes.at(-1);
    const costs = last ? costsOf(rows.filter(isOf(last)), last) : [];
    const isAtMain = last?.workers === MAIN.workers;
    const all = [...checkLimits(rows.filter(isOf(MAIN))), ...(isAtMain ? costs.map(({check}) => check) : [])];
    const checks = all.filter(({figure}) => !options.limits || figure !== 'seconds');
    return {ends, scenes: rows, checks, costs: costs.map(({text}) => text)};
  } finally {
    rmSync(folder, {recursive: true, force: true});
  }
}

function choiceOf({limits, scenes}: Options): (name: string) => boolean {
  const isNamed = (name: string) => scenes.split(';').some(part => name.includes(part));
  const isLimited = (name: string) => LIMITED_SCENES.has(name) || PRICED.includes(name);
  const isChosen = (name: string) => isNamed(name) && (!limits || isLimited(name));
  if (![...Object.keys(SCENES), ...ENDS.map(({name}) => name)].some(isChosen))
    throw new Error(`Failed to find a scene with "${scenes}" in its name: see --help`);
  return isChosen;
}

function sizesOf({limits, sizes}: Options): Size[] {
  if (limits) return [MAIN];
  return sizes.split(',').map(text => {
    const workers = Number(text);
    if (!(workers >= FEWEST_WORKERS && Number.isInteger(workers / RUNS)))
      throw new Error(
        `Failed to measure ${text} workers: give a multiple of ${RUNS}, at least ${FEWEST_WORKERS}`,
      );
    return {workers, streams: workers * STREAMS_EACH};
  });
}

/** The budget of a quiet tick over many runs. */
const MOST_READS = 300;
const MOST_S = 10;

/** Prints the scenes of many runs, each from a process of its own. Returns false if the quiet tick is over its budget. */
function measureMany({scenes}: Options): boolean {
  const names = Object.keys(MANY_SCENES);
  const chosen = names.filter(name => scenes.split(';').some(part => name.includes(part)));
  if (chosen.length === 0)
    throw new Error(`Failed to find a scene with "${scenes}": give ${names.join(', ')}`);
  return chosen
    .map(name => {
      const figures: Figures[] = JSON.parse(inProcess('./control-plane/measure.ts', 'many', name));
      for (const {scene, seconds, reads, writes, calls, note} of figures)
        console.log(
          `${scene}: ${seconds.toFixed(1)} s, ${reads} reads, ${writes} writes, ${calls} calls. ${note}`,
        );
      const isWithin = figures.every(({reads, seconds}) => reads <= MOST_READS && seconds <= MOST_S);
      return name !== 'quietTick' || isWithin;
    })
    .every(Boolean);
}

const options = optionsOf();
if (options.many) process.exitCode = measureMany(options) ? 0 : 1;
else {
  const report = measureAll(options);
  print(report);
  process.exitCode = report.checks.some(({is_over}) => is_over) ? 1 : 0;
}
