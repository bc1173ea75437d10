/** Runs many seeds, with up to a thread for each core, and sums up the results. */
import {availableParallelism} from 'node:os';
import {Worker} from 'node:worker_threads';
import {KINDS} from './conditions/faults.ts';
import {SIMPLER} from './context.ts';
import {findChanges} from './planting/code.ts';
import {type Outcome, simulate} from './world.ts';

export type Share = {first: number; step: number; end: number};
export type Ran = Pick<Outcome, 'seed' | 'violation' | 'seen'>;
export type Seen = Record<string, {worlds: number; times: number}>;
export type Report = {
  seeds: number;
  /** By event: the worlds that had it, and its count in all worlds. */
  seen: Seen;
  violations: {seed: number; violation: string}[];
};

export type Search = {first: number; seeds: number; onProgress?: (total: Report) => void};

/** A thread for fewer worlds takes longer to load the code than to play them. */
const WORLDS_OF_A_THREAD = 50;

export async function runSeeds({first, seeds, onProgress = () => {}}: Search): Promise<Report> {
  findChanges();
  const threads = Math.min(availableParallelism(), Math.ceil(seeds / WORLDS_OF_A_THREAD));
  const total: Report = {seeds: 0, seen: {}, violations: []};
  const running = Array.from({length: threads}, (_, thread) => {
    const share: Share = {first: first + thread, step: threads, end: first + seeds};
    const worker = new Worker(new URL('./worker.ts', import.meta.url), {workerData: share});
    return new Promise<void>((resolve, reject) => {
      worker.on('message', (ran: Ran) => {
        add(total, ran);
        onProgress(total);
      });
      worker.once('error', reject);
      worker.once('exit', () => resolve());
    });
  });
  await Promise.all(running);
  total.violations.sort((a, b) => a.seed - b.seed);
  return total;
}

function add(total: Report, {seed, violation, seen}: Ran): void {
  total.seeds += 1;
  for (const [what, times] of Object.entries(seen)) {
    const before = total.seen[what] ?? {worlds: 0, times: 0};
    total.seen[what] = {worlds: before.worlds + 1, times: before.times + times};
  }
  if (violation !== undefined) total.violations.push({seed, violation});
}

export type Case = {seed: number; without: string[]; violation: string};

/** Makes a broken world smaller: leaves out every part and fault that the violation does not need. */
export async function shrink(seed: number): Promise<Case | undefined> {
  let found = (await simulate(seed)).violation;
  if (found === undefined) return undefined;
  const without = new Set<string>();
  for (const what of [...SIMPLER, ...KINDS]) {
    const {violation} = await simulate(seed, {without: new Set([...without, what])});
    if (violation === undefined) continue;
    without.add(what);
    found = violation;
  }
  return {seed, without: [...without], violation: found};
}
