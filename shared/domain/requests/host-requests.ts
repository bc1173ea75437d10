/** Requests of a host about a command: it takes the command, then reports its end. Both may be repeated. */

import {execFolder} from '../names.ts';
import {type Exec, type ExecHost, hasHostEnded, secondsLeft, withoutExec} from '../records/exec.ts';
import type {Pool} from '../records/pool.ts';
import type {Worker} from '../records/worker.ts';
import {iso} from '../time.ts';
import {none, ok, type RequestDecision} from './requests.ts';

type ExecRequest = {exec: string; host: number};

export type TakeExecState = {
  worker: Worker;
  exec: Exec | undefined;
  execHost: ExecHost | undefined;
  pool: Pool | undefined;
  bucket: string;
};

/** Marks the host as running, and answers with the command and the source and environment of the worker's pool. */
export function decideTakeExec(
  {worker, exec, execHost, pool, bucket}: TakeExecState,
  {exec: id, host}: ExecRequest,
  now: number,
): RequestDecision {
  if (exec?.status !== 'running') {
    // The agent asks again at every heartbeat that names the command.
    const without = withoutExec(worker, id);
    const answer = none(`command ${id} is over`);
    return without === worker ? {answer} : {answer, writes: {worker: without}};
  }
  const timeout_s = secondsLeft(exec, now);
  if (timeout_s < 1) return {answer: none(`command ${id} is over`)};
  if (!execHost || execHost.incarnation !== worker.incarnation || hasHostEnded(execHost))
    return {answer: none(`host ${host} of ${worker.name} has no command ${id} to run`)};
  const hostname = worker.hosts[host]?.hostname ?? execHost.hostname;
  const running = {...execHost, hostname, status: 'running' as const, started_at: iso(now)};
  const {argv, shell} = exec;
  return {
    answer: ok({
      action: 'exec',
      exec: {
        ...{id, argv, shell, timeout_s},
        folder: execFolder(id, worker.name, host),
        source: pool?.source ?? null,
        environment: pool?.environment ?? null,
        source_version: pool?.source_version ?? 0,
      },
      bucket,
    }),
    ...(execHost.status === 'waiting' ? {writes: {execHost: {exec: id, host: running}}} : {}),
  };
}

/** `others`: the command on the other hosts of the worker. */
export type EndExecState = {
  worker: Worker;
  execHost: ExecHost | undefined;
  others?: readonly (ExecHost | undefined)[];
};

type ExecEnd = ExecRequest & Pick<ExecHost, 'exit_code' | 'error'> & {outcome: ExecHost['status']};

/** Records the end of the command on the host once. The last host of a worker takes the command off it; the last of all ends the command. */
export function decideEndExec(
  {worker, execHost, others = []}: EndExecState,
  {exec: id, host, outcome, exit_code, error}: ExecEnd,
  now: number,
): RequestDecision {
  if (!execHost || execHost.incarnation !== worker.incarnation) {
    const reason = `host ${host} of ${worker.name} has no command ${id}`;
    return {answer: {status: 409, body: {action: 'none', reason, error: reason}}};
  }
  const decision: RequestDecision = {answer: ok({action: 'continue', reason: ''}), endsExec: id};
  if (hasHostEnded(execHost)) return decision;
  const ended = {...execHost, status: outcome, exit_code, error, ended_at: iso(now)};
  const isLast = others.every(other => !other || hasHostEnded(other));
  return {
    ...decision,
    writes: {
      execHost: {exec: id, host: ended},
      worker: isLast && worker.execs.includes(id) ? withoutExec(worker, id) : undefined,
    },
  };
}
