/** Ends commands: when the last of their hosts ends, or at a tick after their deadline. */

import {paths} from '../../domain/names.ts';
import {
  type Exec,
  type ExecHost,
  hasHostEnded,
  isOverdue,
  lossReason,
  withoutExec,
} from '../../domain/records/exec.ts';
import {isAlive, type Workers} from '../../domain/records/worker.ts';
import {iso} from '../../domain/time.ts';
import {batchesOf, forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {
  execHostRecords,
  execRecords,
  leftAlone,
  OPEN_HOSTS,
  RUNNING,
  SUCCEEDED,
  workerRecords,
} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {pagesOf} from '../documents/pages.ts';

/** Ends the command if none of its hosts is open, or `anyway`. Hosts are counted outside of the transaction, because an ended host stays ended. */
export async function concludeExec({store, log, now}: Deps, exec: string, anyway = false): Promise<void> {
  const running = await execRecords.get(store, exec);
  if (running?.status !== 'running' || !(running.is_assigned || anyway)) return;
  const collection = paths.execHosts(exec);
  const open = await store.count(collection, [OPEN_HOSTS]);
  if (open > 0 && !anyway) return;
  const [hosts, succeeded] = await Promise.all([store.count(collection), store.count(collection, SUCCEEDED)]);
  await store.transaction(async tx => {
    const current = await execRecords.get(tx, exec);
    if (current?.status !== 'running') return;
    const at = now();
    const hosts_failed = hosts - succeeded;
    const counts = {hosts, hosts_done: hosts - open, hosts_failed};
    const ended: Exec = {...current, ...counts, status: 'done', completed_at: iso(at)};
    const isEmpty = hosts === 0;
    const reason = `the workers of ${current.target} ended before they had the command`;
    execRecords.set(tx, isEmpty ? {...ended, status: 'rejected', reason} : ended);
    const text = isEmpty
      ? `Command ${exec} is rejected: ${reason}`
      : `Command ${exec} has ended on ${hosts} hosts, and failed on ${hosts_failed}`;
    log('INFO', text);
    recordEvent(tx, {kind: 'control', message_id: current.message_id, text}, at);
  });
}

const EXECS_AT_ONCE = 20;
const HOSTS_AT_ONCE = 50;

/** Ends the hosts that can no longer answer, and then the commands without an open host. */
export async function endLostExecs(deps: Deps, workers: Workers): Promise<void> {
  const {store, log} = deps;
  const end = async (exec: Exec) => {
    const open = await store.count(paths.execHosts(exec.exec), [OPEN_HOSTS]);
    const isLate = isOverdue(exec, deps.now());
    const left = [...workers.values()].filter(worker => isAlive(worker) && worker.execs.includes(exec.exec));
    if (isLate || open > left.length) await endSilentHosts(deps, exec, workers);
    // A host whose document is invalid never reports.
    if (isLate || open === 0) await concludeExec(deps, exec.exec, isLate);
  };
  // All of them, so that commands that run for a day do not hide others.
  for await (const page of pagesOf(store, 'execs', {where: [RUNNING]}, EXECS_AT_ONCE))
    await forEachConcurrently(execRecords.parseAll(page, leftAlone(log)), end);
}

/** Ends the hosts whose worker has ended, page by page. A host at work is not read in a transaction, which would delay its heartbeats. */
async function endSilentHosts(deps: Deps, exec: Exec, workers: Workers): Promise<void> {
  for await (const page of pagesOf(deps.store, paths.execHosts(exec.exec), {where: [OPEN_HOSTS]})) {
    const hosts = execHostRecords.parseAll(page, leftAlone(deps.log));
    const silent = hosts.filter(host => lossReason(host, exec, workers.get(host.worker), deps.now()));
    await forEachConcurrently(batchesOf(silent, HOSTS_AT_ONCE), batch => endLostHosts(deps, exec, batch));
  }
}

async function endLostHosts({store, log, now}: Deps, exec: Exec, batch: readonly ExecHost[]): Promise<void> {
  const names = [...new Set(batch.map(({worker}) => worker))];
  await store.transaction(async tx => {
    const holders = await Promise.all(names.map(name => workerRecords.read(log, tx, name)));
    const hosts = await Promise.all(
      batch.map(({worker, host}) => execHostRecords.get(tx, exec.exec, worker, host)),
    );
    const at = now();
    const workers = new Map(holders.flatMap(worker => (worker ? [[worker.name, worker] as const] : [])));
    const freed = new Set<string>();
    for (const host of hosts) {
      if (!host || hasHostEnded(host)) continue;
      const worker = workers.get(host.worker);
      const error = lossReason(host, exec, worker, at);
      if (error === undefined) continue;
      execHostRecords.set(tx, exec.exec, {...host, status: 'lost', error, ended_at: iso(at)});
      freed.add(host.worker);
    }
    for (const name of freed) {
      const worker = workers.get(name);
      const next = worker && withoutExec(worker, exec.exec);
      if (next && next !== worker) workerRecords.set(tx, next);
    }
  });
}
