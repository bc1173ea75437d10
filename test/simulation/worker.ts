/** Runs the seeds of one thread. */
import {parentPort, workerData} from 'node:worker_threads';
import type {Ran, Share} from './run.ts';
import {simulate} from './world.ts';

const {first, step, end, mistake} = workerData as Share;

for (let seed = first; seed < end; seed += step) {
  const {violation, seen} = await simulate(seed, {mistake});
  // A world that breaks without the mistake shows nothing of it.
  const isOther =
    violation !== undefined && mistake.length > 0 && (await simulate(seed)).violation !== undefined;
  parentPort?.postMessage({seed, violation: isOther ? undefined : violation, seen} satisfies Ran);
}
