/** Lists the states, faults and messages that the worlds must show. A state that no world reaches is not tested. */
import type {ControlMessage} from '../../shared/control-plane/events/commands/table.ts';
import {NOTICE_TYPES} from '../../shared/domain/notices/notice.ts';
import type {JobStatus} from '../../shared/domain/records/job.ts';
import type {RunStatus} from '../../shared/domain/records/run.ts';
import type {StreamStatus} from '../../shared/domain/records/stream.ts';
import type {Phase} from '../../shared/domain/records/worker.ts';
import type {ReleaseOutcome} from '../../shared/domain/stream/lease.ts';
import type {Death} from '../../shared/domain/worker/liveness.ts';
import {TAKEN} from '../world/tpus.ts';
import {KINDS} from './conditions/faults.ts';
import {NEXT_RELEASE_COUNTERS} from './planting/code.ts';
import type {Seen} from './run.ts';
import {SYMPTOMS, TRANSIENT, UNHEALTHY} from './vms.ts';

/** A list of every member of a union. The compiler rejects a list that lacks one. */
const all =
  <T extends string>() =>
  <const N extends readonly T[]>(...names: [T] extends [N[number]] ? N : never): readonly string[] =>
    names;

const PHASES = all<Phase>()('creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone');
const STREAMS = all<StreamStatus>()('pending', 'in_progress', 'completed', 'failed');
const JOBS = all<Exclude<JobStatus, 'pending'>>()('scheduled', 'running', 'completed', 'failed', 'cancelled');
const RUNS = all<RunStatus>()('active', 'paused', 'completed', 'failed', 'stopped');
const DEATHS = all<Death['kind'] | 'not-needed'>()(
  ...(['taken', 'setup', 'unheard', 'boot', 'crashed', 'broken', 'silent', 'hung'] as const),
  ...(['not-needed', 'asked'] as const),
);
const ACTIONS = all<ControlMessage['action']>()(
  ...(['start', 'pause', 'resume', 'stop', 'retry', 'cancel', 'rebuild', 'configure', 'scale'] as const),
  ...(['recreate', 'delete', 'submit', 'pool', 'keep', 'clear', 'update', 'correct'] as const),
);
const OUTCOMES = all<ReleaseOutcome>()('completed', 'drained', 'preempted', 'failed');

/** The names that many worlds must show, by group. */
export const EXPECTED: Record<string, readonly string[]> = {
  fault: KINDS,
  'a forged request is refused': ['hello', 'lease', 'heartbeat', 'release', 'finish'],
  'a worker is': PHASES,
  'a stream is': STREAMS,
  'a run is': RUNS,
  'a job is': JOBS,
  'a node is': [...new Set(['CREATING', 'READY', 'DELETING', ...TAKEN, ...TRANSIENT])],
  'a node comes from': ['tpu-api', 'compute-engine'],
  'a limiter is': ['open', 'probing', 'stopped'],
  'a command is': ['running', 'done', 'rejected'],
  'a command on a host is': ['waiting', 'running', 'exited', 'timeout', 'lost'],
  'a node is reported': [...UNHEALTHY, ...SYMPTOMS, 'MESH_BUILD_FAIL'],
  provisioning: ['node', 'queued-resource', 'auto'],
  'a queued resource is': [
    ...['ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE'],
    ...['SUSPENDING', 'SUSPENDED', 'FAILED', 'DELETING'],
  ],
  'an incarnation ends': DEATHS,
  'an operator sends': [
    ...ACTIONS.map(action => `${action} (applied)`),
    'an invalid message (rejected)',
    'an older message after a later one',
  ],
  'lease is answered': ['work', 'job', 'wait', 'exit'],
  'finish is answered': ['completed: continue', 'failed: continue', 'preempted: continue'],
  'heartbeat is answered': ['continue', 'drain', 'stop', 'exit'],
  'release is answered': [
    ...OUTCOMES.map(outcome => `${outcome}: continue`),
    'completed: stop',
    'failed: stop',
  ],
  ceilings: ['the maximum of workers', 'the maximum of workers over two pools'],
  'the second pool has': ['a worker', 'a stream', 'a job'],
  'at the same time': ['a handler and its redelivery', 'a second machine of a slot', 'two ticks'],
  'the next release counts': NEXT_RELEASE_COUNTERS,
  'a notification is accepted': NOTICE_TYPES,
  'a document is left alone': ['streams', 'jobs', 'zones'],
};

export function gaps(seen: Seen): string[] {
  return Object.entries(EXPECTED).flatMap(([group, names]) =>
    names.map(name => `${group}: ${name}`).filter(what => !seen[what]),
  );
}

/** A table of the number of worlds and events for each name: first the expected names, then all others. */
export function tableOf(seen: Seen): string[] {
  const line = (name: string, what: string) => {
    const {worlds, times} = seen[what] ?? {worlds: 0, times: 0};
    const gap = worlds === 0 ? '  <- never' : '';
    return `  ${name.padEnd(34)} ${String(worlds).padStart(9)} ${String(times).padStart(12)}${gap}`;
  };
  const known = new Set(
    Object.entries(EXPECTED).flatMap(([group, names]) => names.map(name => `${group}: ${name}`)),
  );
  const others = Object.keys(seen)
    .filter(what => !known.has(what))
    .sort();
  return [
    `  ${''.padEnd(34)} ${'worlds'.padStart(9)} ${'times'.padStart(12)}`,
    ...Object.entries(EXPECTED).flatMap(([group, names]) => [
      group,
      ...names.map(name => line(name, `${group}: ${name}`)),
    ]),
    ...(others.length > 0 ? ['other'] : []),
    ...others.map(what => line(what, what)),
  ];
}
