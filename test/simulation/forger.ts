/** A machine that a stranger has taken over: it sends requests in the name of other workers, with its own secret and ticket. */
import {parseJobWork, parseWork} from '../../shared/domain/names.ts';
import type {Context} from './context.ts';
import {isUp, workersOf} from './invariants/nodes.ts';
import type {WorkerRequest} from './invariants/violations.ts';

/** A report that the job of another worker is completed. */
const FINISH = {
  action: 'finish' as const,
  ...{outcome: 'completed', cause: null, error: null, exit_code: null},
  ...{result: 'forged', result_object: null, has_artifacts: false, ran: null},
};

/** A request in the name of another worker; undefined without another worker. */
export function forgedBy(context: Context, name: string, ticket: string): WorkerRequest | undefined {
  const {chance, store, tpus} = context;
  const others = workersOf(store).filter(worker => worker.name !== name && isUp(worker));
  if (others.length === 0) return undefined;
  const victim = chance.pick(others);
  const from = {worker: victim.name, incarnation: victim.incarnation, host: 0};
  const job = parseJobWork(victim.work);
  const {run, stream} = parseWork(victim.work) ?? {run: 'my-run', stream: '000'};
  const lease = {run, stream, epoch: victim.epoch ?? 1};
  const release = {action: 'release' as const, ...from, lease};
  const isBound = victim.host_secrets[0] !== undefined;
  // A reader of the node knows its ticket, which is worth nothing after the hello of the host.
  const stolen =
    isBound && chance.happens(0.5) ? tpus.nodes.get(victim.name)?.metadata['gleaner-ticket'] : '';
  return chance.pick<WorkerRequest>([
    {action: 'hello', ...from, ticket: stolen || ticket},
    {action: 'lease', ...from, loaded: null},
    {action: 'heartbeat', ...from, phase: 'setup', lease: null, progress: null},
    {action: 'heartbeat', ...from, phase: 'running', lease, progress: null},
    {...release, outcome: 'failed', failure: {kind: 'infrastructure', reason: 'forged'}},
    {...release, outcome: 'drained', failure: null},
    ...(job === undefined ? [] : [{...FINISH, ...from, lease: {job, epoch: victim.epoch ?? 1}}]),
  ]);
}
