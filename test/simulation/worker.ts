/** Runs the seeds of one thread. */
import {parentPort, workerData} from 'node:worker_threads';
import type {Ran, Share} from './run.ts';
import {simulate} from './world.ts';

const {first, step, end} = workerData as Share;

for (let seed = first; seed < end; seed += step) {
  const {violation, seen} = await simulate(seed);
  parentPort?.postMessage({seed, violation, seen} satisfies Ran);
}
