import type {Run} from './run.ts';
import {iso} from './time.ts';
import type {Worker} from './worker.ts';

export type RunAction = 'start' | 'pause' | 'resume' | 'stop';

export type ControlMessage = {action: RunAction; run: string} | {action: 'recreate'; worker: string};

export type RunDecision = {kind: 'applied'; run: Run; what: string} | {kind: 'rejected'; reason: string};
export type WorkerOrder =
  | {kind: 'applied'; worker: Worker; what: string}
  | {kind: 'rejected'; reason: string};

/**
 * What a message about a run does. Asking for what is so already is applied and changes nothing, so a repeated message is
 * harmless; what cannot be done is rejected with the reason. `stop` is final.
 */
export function decideRunAction(
  action: RunAction,
  name: string,
  run: Run | undefined,
  now: number,
): RunDecision {
  if (!run)
    return {
      kind: 'rejected',
      reason: `there is no run "${name}": drop datasets/${name}/stream_000.jsonl first`,
    };
  const become = (status: Run['status'], what: string): RunDecision => ({
    kind: 'applied',
    run: run.status === status ? run : {...run, status, updated_at: iso(now)},
    what: run.status === status ? `${name} was ${status} already` : what,
  });
  const refuse = (): RunDecision => ({
    kind: 'rejected',
    reason: `run "${name}" is ${run.status}: ${action} does nothing to it${run.status === 'cancelled' ? ', because a stop is final; drop the streams as a new run' : ''}`,
  });
  switch (action) {
    case 'start':
    case 'resume':
      if (run.status === 'active' || run.status === 'paused')
        return become('active', action === 'start' ? `${name} started` : `${name} resumed`);
      if (action === 'start' && run.status !== 'cancelled')
        return {kind: 'applied', run, what: `${name} is ${run.status}: nothing is left to start`};
      return refuse();
    case 'pause':
      if (run.status === 'active' || run.status === 'paused') return become('paused', `${name} paused`);
      return refuse();
    case 'stop':
      if (run.status === 'completed') return refuse();
      return become('cancelled', `${name} stopped for good`);
    default:
      return action satisfies never;
  }
}

/** `recreate`: the slot's TPU is deleted whatever its state and made again, if the pool still wants it then. */
export function decideRecreate(name: string, worker: Worker | undefined): WorkerOrder {
  if (!worker) return {kind: 'rejected', reason: `there is no worker "${name}"`};
  if (worker.phase === 'gone' || worker.phase === 'deleting')
    return {kind: 'applied', worker, what: `${name} is ${worker.phase} already`};
  return {kind: 'applied', worker: {...worker, recreate: true}, what: `${name} will be made again`};
}
