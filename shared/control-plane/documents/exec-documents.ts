/** Documents of commands on hosts: `execs/{id}`, and `execs/{id}/hosts/{worker}.{host}` for each host. */
import {type Exec, type ExecHost, execDocument, execHostDocument} from '../../domain/exec/exec.ts';
import {paths} from '../../domain/names.ts';
import type {Filter, Store, Transaction} from '../../ports.ts';
import {recordsOf} from './document-kind.ts';

export const RUNNING: Filter = {field: 'status', op: '==', value: 'running'};
/** Hosts that have not ended. */
export const OPEN_HOSTS: Filter = {field: 'status', op: 'in', value: ['waiting', 'running']};
/** Hosts on which the command succeeded. */
export const SUCCEEDED: Filter[] = [
  {field: 'status', op: '==', value: 'exited'},
  {field: 'exit_code', op: '==', value: 0},
];

const execs = recordsOf(execDocument);
const hosts = recordsOf(execHostDocument);

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
