/** Runs the seeds of one thread. The changes of a mistake are made before the control plane is loaded. */
import {parentPort, workerData} from 'node:worker_threads';
import {loadChanged} from './edits.ts';
import type {Ran, Share} from './run.ts';

const {first, step, end, mistake} = workerData as Share;
loadChanged(mistake);
const {simulate} = await import('./world.ts');

for (let seed = first; seed < end; seed += step) {
  const started = performance.now();
  const {trace: _, ...outcome} = await simulate(seed);
  parentPort?.postMessage({...outcome, ms: performance.now() - started} satisfies Ran);
}
