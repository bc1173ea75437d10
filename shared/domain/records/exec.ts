/** Commands on hosts: a command runs once on each host of the living workers of its target. */
import {z} from 'zod';
import {count, incarnation, instant, integer, orNull, stored, text} from '../fields.ts';
import {parseWorkerName} from '../names.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import {isAlive, type Worker} from './worker.ts';

export const execDocument = stored({
  exec: text.describe('Id of the command, which the sender chose.'),
  target: text.describe('A pool, a TPU, or `all`.'),
  argv: z.array(text).min(1).describe('The program and its arguments; with `shell`, one text.'),
  shell: z.boolean().describe('True: `bash -c` runs the text.'),
  timeout_s: z.number().positive().describe('Seconds that each host may take.'),
  requested_by: orNull(text).describe('Sender, in the words of the message; null if it says nothing.'),
  message_id: text.describe('Id of the message in Pub/Sub.'),
  status: z.enum(['running', 'done', 'rejected']).describe('`running`, `done`, or `rejected`.'),
  reason: orNull(text).describe('Why the command was rejected; else null.'),
  is_assigned: z.boolean().describe('True when every host of the target has its document.'),
  hosts: count.describe('Hosts of the target.'),
  hosts_done: count.describe('Ended hosts, counted at the end.'),
  hosts_failed: count.describe('Hosts without exit code 0, counted at the end.'),
  created_at: instant.describe('Time at which the command was accepted.'),
  deadline_at: instant.describe('Time at which the last host must have ended.'),
  completed_at: orNull(instant).describe('End of the command; null before.'),
  expire_at: instant.describe('Firestore deletes the document some time after this.'),
  output_path: text.describe('Address of the folder with the output of all hosts.'),
});
export type Exec = z.infer<typeof execDocument>;

/**
 * The document of a command on one host. `refused`: the host did not start the command. `lost`: the host did not answer before the deadline,
 * or its worker ended.
 */
export const execHostDocument = stored({
  worker: text.describe('Name of the TPU.'),
  incarnation: incarnation.describe('Incarnation that was asked.'),
  host: count.describe('Number of the host in the TPU, from 0.'),
  hostname: orNull(text).describe('Name of the host; null if it has not said hello.'),
  status: z
    .enum(['waiting', 'running', 'exited', 'timeout', 'refused', 'lost'])
    .describe('Status word of the host; [Operations](../operations.md) explains each.'),
  exit_code: orNull(integer).describe('Exit code of the program; null without one.'),
  error: orNull(text).describe('Why the host ran nothing or gave no answer; null without an error.'),
  started_at: orNull(instant).describe('Start of the program; null before.'),
  ended_at: orNull(instant).describe('End of the program, or of the wait for it; null before.'),
  expire_at: instant.describe('Firestore deletes the document some time after this.'),
  output_path: text.describe('Address of the folder with the output of this host.'),
});
export type ExecHost = z.infer<typeof execHostDocument>;

/** A host must ask for its command within this time: heartbeats name the command, and a booting host sends its first one late. */
const START_S = 300;
export const REPORT_S = 60;

/** Most commands that a worker may have at once: each heartbeat's answer names all of them. */
export const MOST_OPEN_EXECS = 20;

export function execTimes(timeout_s: number, now: number, kept_days: number) {
  return {
    created_at: iso(now),
    deadline_at: iso(now + (START_S + timeout_s) * 1000),
    expire_at: iso(now + kept_days * 86_400_000),
  };
}

/** Seconds that the command may run on a host that starts it now. Zero or less: it is too late to start. */
export function secondsLeft({deadline_at, timeout_s}: Exec, now: number): number {
  return Math.min(timeout_s, Math.floor((msOf(deadline_at) - now) / 1000));
}

export const isOverdue = ({deadline_at}: Exec, now: number) => isOlderThan(deadline_at, REPORT_S, now);

export function hasHostEnded({status}: Pick<ExecHost, 'status'>): boolean {
  return status !== 'waiting' && status !== 'running';
}

export type Target = {kind: 'all'} | {kind: 'worker'; worker: string} | {kind: 'pool'; pool: string};

export function parseTarget(target: string): Target {
  if (target === 'all') return {kind: 'all'};
  return parseWorkerName(target) ? {kind: 'worker', worker: target} : {kind: 'pool', pool: target};
}

/** Why no host can run the command, or undefined. `found`: the workers of the target, whether they live or not. */
export function targetProblem(target: Target, found: readonly Worker[]): string | undefined {
  if (found.some(isAlive)) return undefined;
  if (target.kind === 'all') return 'no worker is running: workers are created when there is work';
  if (target.kind === 'pool')
    return `pool "${target.pool}" has no running worker: workers are created when there is work, or by \`gleaner pool keep ${target.pool} --minutes 10\``;
  const [worker] = found;
  return worker
    ? `worker "${target.worker}" is ${worker.phase}, not running`
    : `there is no worker "${target.worker}"`;
}

/** Why a worker cannot run another command: it has too many already. Undefined if it can. */
export function workerProblem({name, execs}: Worker): string | undefined {
  if (execs.length < MOST_OPEN_EXECS) return undefined;
  return `${name} has ${execs.length} commands that have not ended: wait for them`;
}

export function withExec(worker: Worker, exec: string): Worker {
  return worker.execs.includes(exec) ? worker : {...worker, execs: [...worker.execs, exec]};
}

export function withoutExec(worker: Worker, exec: string): Worker {
  if (!worker.execs.includes(exec)) return worker;
  return {...worker, execs: worker.execs.filter(id => id !== exec)};
}

/** Why a host that has not finished can no longer answer, or undefined. `worker`: the present document. */
export function lossReason(host: ExecHost, exec: Exec, worker: Worker | undefined, now: number) {
  if (isOverdue(exec, now)) return 'the host gave no answer before the deadline';
  if (!worker || worker.incarnation !== host.incarnation || !isAlive(worker))
    return `${host.worker}, incarnation ${host.incarnation}, is not running any more`;
  return undefined;
}
