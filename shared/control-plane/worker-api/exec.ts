/** Requests of a host about a command: it takes the command, and reports its end. Both are safe to repeat. */
import {hasHostEnded, secondsLeft, withoutExec} from '../../domain/exec/exec.ts';
import {execFolder} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import {hasHost, hostsOf} from '../../domain/worker/hosts.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {execHostRecords, execRecords} from '../documents/exec-documents.ts';
import {concludeExec} from '../execs/end-exec.ts';
import {
  type Asked,
  contradicts,
  impostor,
  isAhead,
  isCurrent,
  notWanted,
  ok,
  speaksFor,
  unknown,
  type WorkerAnswer,
} from './answers.ts';

const none = (reason: string) => ok({action: 'none', reason});

/** The worker that the request speaks for, or the answer to any other sender. */
async function senderOf(
  deps: Deps,
  tx: Transaction,
  request: Asked<'exec'> | Asked<'exec-end'>,
): Promise<Worker | {answer: WorkerAnswer}> {
  const worker = await skipIfInvalid(deps.log, () => workerRecords.get(tx, request.worker));
  const what = request.action === 'exec' ? 'take a command' : 'report a command';
  if (contradicts(worker, request)) return {answer: impostor(deps, what, request)};
  if (!worker || isAhead(request, worker)) return {answer: none(unknown(request))};
  if (!isCurrent(worker, request)) return {answer: none(notWanted(request))};
  if (!speaksFor(worker, request) || !hasHost(request.host)) return {answer: impostor(deps, what, request)};
  return worker;
}

/** Marks the host as running, and answers the command with the source and the environment of the worker's pool. */
export async function takeExec(deps: Deps, request: Asked<'exec'>): Promise<WorkerAnswer> {
  const {exec: id, host} = request;
  return deps.store.transaction(async (tx): Promise<WorkerAnswer> => {
    const worker = await senderOf(deps, tx, request);
    if ('answer' in worker) return worker.answer;
    const exec = await skipIfInvalid(deps.log, () => execRecords.get(tx, id));
    const own = await skipIfInvalid(deps.log, () => execHostRecords.get(tx, id, worker.name, host));
    const now = deps.now();
    const seconds = exec ? secondsLeft(exec, now) : 0;
    const isOver = exec?.status !== 'running' || seconds < 1;
    if (!exec || isOver) {
      // The agent would ask at every heartbeat.
      const without = withoutExec(worker, id);
      const isIdle = exec?.status !== 'running' && without !== worker;
      if (isIdle) workerRecords.set(tx, without);
      return none(`command ${id} is over`);
    }
    if (!own || own.incarnation !== worker.incarnation || hasHostEnded(own))
      return none(`host ${host} of ${worker.name} has no command ${id} to run`);
    const pool = await poolOf(deps, worker.pool);
    const hostname = worker.hosts[host]?.hostname ?? own.hostname;
    if (own.status === 'waiting')
      execHostRecords.set(tx, id, {...own, hostname, status: 'running', started_at: iso(now)});
    const {argv, shell} = exec;
    return ok({
      action: 'exec',
      exec: {
        ...{id, argv, shell, timeout_s: seconds},
        folder: execFolder(id, worker.name, host),
        source: pool?.source ?? null,
        environment: pool?.environment ?? null,
        source_version: pool?.source_version ?? 0,
      },
      bucket: deps.objects.bucket,
    });
  });
}

/** Records the end of the command on the host once. The last host of all ends the command. */
export async function reportExec(deps: Deps, request: Asked<'exec-end'>): Promise<WorkerAnswer> {
  const {exec: id, host, outcome, exit_code, error} = request;
  const answer = await deps.store.transaction(async (tx): Promise<WorkerAnswer> => {
    const worker = await senderOf(deps, tx, request);
    if ('answer' in worker) return worker.answer;
    const own = await execHostRecords.get(tx, id, worker.name, host);
    if (!own || own.incarnation !== worker.incarnation) {
      const reason = `host ${host} of ${worker.name} has no command ${id}`;
      return {status: 409, body: {action: 'none', reason, error: reason}};
    }
    if (hasHostEnded(own)) return ok({action: 'continue', reason: ''});
    const others = hostsOf(worker).filter(each => each !== host);
    const found = await Promise.all(others.map(each => execHostRecords.get(tx, id, worker.name, each)));
    execHostRecords.set(tx, id, {
      ...{...own, status: outcome, exit_code, error},
      ended_at: iso(deps.now()),
    });
    const isLast = found.every(other => other === undefined || hasHostEnded(other));
    const next = isLast ? withoutExec(worker, id) : worker;
    if (next !== worker) workerRecords.set(tx, next);
    return ok({action: 'continue', reason: ''});
  });
  if (answer.status === 200 && 'reason' in answer.body && answer.body.reason === '')
    await concludeExec(deps, id);
  return answer;
}
