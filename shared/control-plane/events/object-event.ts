import {Rejected} from '../../contracts/errors.ts';
import {laterSpecProblem} from '../../contracts/spec/spec.ts';
import {LARGE} from '../../domain/fleet/slots.ts';
import {isRunId, parseDatasetObject, parseOutputObject, streamIndexOf} from '../../domain/names.ts';
import {isLarge, needsNoTick} from '../caches/pool-cache.ts';
import {wake} from '../calls/wake.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {recordRejection} from '../documents/event-log.ts';
import {startTask} from '../documents/tasks.ts';
import {ensureRun} from '../runs/ensure-run.ts';
import {readRunSpec} from '../runs/run-manifest.ts';
import {advanceByShard} from '../streams/advance-checkpoint.ts';
import {registerStream} from '../streams/register-stream.ts';

/** Registers a stream, counts a shard, or reads the spec of a run that waits for it. Other objects are ignored. */
export async function handleObjectEvent(deps: Deps, name: string): Promise<void> {
  const shard = parseOutputObject(name);
  if (shard) {
    if (!(await advanceByShard(deps, shard))) return;
    // The number of a stream of a large run is large, except for its first streams.
    const isOfLarge = streamIndexOf(shard.stream) >= LARGE;
    const run = isOfLarge ? await runRecords.read(deps.log, deps.store, shard.run) : undefined;
    if (!isLarge(run) || !(await needsNoTick(deps, run))) await wake(deps.bus);
    return;
  }
  if (!name.startsWith('datasets/') || name.endsWith('/')) return;
  const dataset = parseDatasetObject(name);
  switch (dataset.kind) {
    case 'unknown': {
      const text = `${name} is ignored: ${dataset.reason}`;
      return recordRejection(deps, {...runOf(name), object: name, text});
    }
    case 'spec':
      return handleSpec(deps, dataset.run, name);
    case 'stream': {
      // A stream that was deleted meanwhile creates no run.
      if (!(await deps.objects.head(name))) return;
      const run = await ensureRun(deps, dataset.run);
      await registerStream(deps, run, name, dataset.stream);
      if (isLarge(run) && (await needsNoTick(deps, run))) return;
      return wake(deps.bus);
    }
    default:
      return dataset satisfies never;
  }
}

function runOf(name: string): {run?: string} {
  const [, run = '', file] = name.split('/');
  return file !== undefined && isRunId(run) ? {run} : {};
}

/** Registers the streams of a run that waits for a valid `run.json`. A frozen spec never changes. */
async function handleSpec(deps: Deps, run: string, name: string): Promise<void> {
  const parent = await runRecords.get(deps.store, run);
  try {
    const input = await readRunSpec(deps.objects, run);
    if (!input) return;
    const problem = parent?.spec && laterSpecProblem(parent, input, deps.config);
    if (problem) throw new Rejected(`${name} is ignored: ${problem}`);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return recordRejection(deps, {object: name, run, text: error.message});
  }
  if (parent && !parent.spec) await startTask(deps, {task: 'register', run});
}
