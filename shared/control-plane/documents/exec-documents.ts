/** Documents of commands on hosts: `execs/{id}`, and `execs/{id}/hosts/{worker}.{host}` for each host. */
import {z} from 'zod';
import {MAX_ORDINAL} from '../../domain/bounds.ts';
import type {Exec, ExecHost} from '../../domain/exec/exec.ts';
import {paths} from '../../domain/names.ts';
import type {Filter, Store, Transaction} from '../../ports.ts';
import {recordsOf} from './document-kind.ts';

const count = z.number().int().min(0);
const instant = z.iso.datetime();
const text = z.string();

const execDocument: z.ZodType<Exec> = z.looseObject({
  exec: text,
  target: text,
  argv: z.array(text).min(1),
  shell: z.boolean(),
  timeout_s: z.number().positive(),
  requested_by: text.nullable(),
  message_id: text,
  status: z.enum(['running', 'done', 'rejected']),
  reason: text.nullable(),
  is_assigned: z.boolean(),
  hosts: count,
  hosts_done: count,
  hosts_failed: count,
  created_at: instant,
  deadline_at: instant,
  completed_at: instant.nullable(),
  expire_at: instant,
  output_path: text,
});

const hostDocument: z.ZodType<ExecHost> = z.looseObject({
  worker: text,
  incarnation: count.max(MAX_ORDINAL),
  host: count,
  hostname: text.nullable(),
  status: z.enum(['waiting', 'running', 'exited', 'timeout', 'refused', 'lost']),
  exit_code: z.number().int().nullable(),
  error: text.nullable(),
  started_at: instant.nullable(),
  ended_at: instant.nullable(),
  expire_at: instant,
  output_path: text,
});

export const RUNNING: Filter = {field: 'status', op: '==', value: 'running'};
/** Hosts that have not ended. */
export const OPEN_HOSTS: Filter = {field: 'status', op: 'in', value: ['waiting', 'running']};
/** Hosts on which the command succeeded. */
export const SUCCEEDED: Filter[] = [
  {field: 'status', op: '==', value: 'exited'},
  {field: 'exit_code', op: '==', value: 0},
];

const execs = recordsOf(execDocument);
const hosts = recordsOf(hostDocument);

export const execRecords = {
  ...execs,
  get: (from: Store | Transaction, exec: string) => execs.get(from, paths.exec(exec)),
  set: (tx: Transaction, exec: Exec) => execs.set(tx, paths.exec(exec.exec), exec),
};

export const execHostRecords = {
  ...hosts,
  get: (from: Store | Transaction, exec: string, worker: string, host: number) =>
    hosts.get(from, paths.execHost(exec, worker, host)),
  set: (tx: Transaction, exec: string, host: ExecHost) =>
    hosts.set(tx, paths.execHost(exec, host.worker, host.host), host),
};
