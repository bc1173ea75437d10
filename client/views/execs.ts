/** Commands on hosts: the newest, and one with its hosts and the end of their output. */
import {execHostRecords, execRecords} from '../../shared/control-plane/documents/documents.ts';
import {execFolder, paths} from '../../shared/domain/names.ts';
import type {Exec, ExecHost} from '../../shared/domain/records/exec.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {outputTail} from '../text/output-parts.ts';

const MOST_HOSTS = 50;

export async function readExecs({store}: Cloud, limit: number): Promise<Exec[]> {
  const newest = {order_by: {field: 'created_at', direction: 'desc'}, limit} as const;
  return execRecords.parseAll(await store.query('execs', newest), () => {});
}

/** `output`: the last lines of each of the first hosts. */
export type ExecView = {exec: Exec; hosts: (ExecHost & {output: string[]})[]};

export async function readExec({store, objects}: Cloud, id: string): Promise<ExecView | undefined> {
  const exec = await execRecords.get(store, id);
  if (!exec) return undefined;
  const found = await store.query(paths.execHosts(id), {limit: MOST_HOSTS});
  const hosts = execHostRecords.parseAll(found, () => {});
  const shown = hosts.map(async host => {
    const folder = execFolder(id, host.worker, host.host);
    return {...host, output: host.started_at === null ? [] : await outputTail(objects, folder, 20)};
  });
  return {exec, hosts: await Promise.all(shown)};
}
