/** Documents of commands on hosts: `execs/{id}`, and `execs/{id}/hosts/{worker}.{host}` for each host. */
import {type ExecHost, execDocument, execHostDocument} from '../../domain/exec/exec.ts';
import {paths} from '../../domain/names.ts';
import type {Filter, Store, Transaction} from '../../ports.ts';
import {recordsAt, recordsOf} from './document-kind.ts';

export const RUNNING: Filter = {field: 'status', op: '==', value: 'running'};
export const OPEN_HOSTS: Filter = {field: 'status', op: 'in', value: ['waiting', 'running']};
/** Hosts on which the command succeeded. */
export const SUCCEEDED: Filter[] = [
  {field: 'status', op: '==', value: 'exited'},
  {field: 'exit_code', op: '==', value: 0},
];

export const execRecords = recordsAt(execDocument, paths.exec, ({exec}) => paths.exec(exec));

const hosts = recordsOf(execHostDocument);

export const execHostRecords = {
  ...hosts,
  get: (from: Store | Transaction, exec: string, worker: string, host: number) =>
    hosts.get(from, paths.execHost(exec, worker, host)),
  set: (tx: Transaction, exec: string, host: ExecHost) =>
    hosts.set(tx, paths.execHost(exec, host.worker, host.host), host),
};
