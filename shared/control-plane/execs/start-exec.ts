/** Starts a command: its document, then the documents of its hosts, worker by worker. */

import type {ExecMessage} from '../../contracts/messages/job-schemas.ts';
import {KEPT_DAYS} from '../../contracts/settings/config.ts';
import {execFolder, paths} from '../../domain/names.ts';
import {
  type Exec,
  execTimes,
  parseTarget,
  type Target,
  targetProblem,
  withExec,
  workerProblem,
} from '../../domain/records/exec.ts';
import {isAlive, type Worker} from '../../domain/records/worker.ts';
import {iso} from '../../domain/time.ts';
import {hostsOf} from '../../domain/worker/hosts.ts';
import type {Filter} from '../../ports/ports.ts';
import {readPool} from '../caches/pool-cache.ts';
import {batchesOf, forEachConcurrently, MASS_LANES} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {execHostRecords, execRecords, LIVING, leftAlone, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {concludeExec} from './end-exec.ts';

const MOST_ASSIGNED = 50;

/**
 * Starts the command once. A delivery after a crash continues and skips hosts that have a document. Returns why nothing was started, if
 * another message has used the id.
 */
export async function startExec(
  deps: Deps,
  message: ExecMessage,
  message_id: string,
): Promise<string | undefined> {
  const earlier = await execRecords.get(deps.store, message.exec);
  const targets = earlier && earlier.status !== 'running' ? [] : await workersOf(deps, message.target);
  const reason = typeof targets === 'string' ? targets : targetProblem(parseTarget(message.target), targets);
  const exec = await createExec(deps, message, message_id, reason);
  if (exec.message_id !== message_id)
    return `the id ${message.exec} belongs to another command: publish the command with an id of its own`;
  if (exec.status !== 'running') return undefined;
  const found = typeof targets === 'string' ? [] : targets.map(({name}) => name);
  if (!exec.is_assigned) {
    await forEachConcurrently(
      batchesOf(found, MOST_ASSIGNED),
      names => assign(deps, exec, names),
      MASS_LANES,
    );
    await closeAssignment(deps, exec.exec);
  }
  await concludeExec(deps, exec.exec);
  return undefined;
}

async function workersOf(deps: Deps, text: string): Promise<Worker[] | string> {
  const target: Target = parseTarget(text);
  const {store, log} = deps;
  if (target.kind === 'worker') {
    const worker = await workerRecords.read(log, store, target.worker);
    return worker ? [worker] : [];
  }
  if (target.kind === 'pool' && !(await readPool(deps, target.pool)))
    return `there is no pool "${target.pool}"`;
  const ofPool: Filter[] = target.kind === 'pool' ? [{field: 'pool', op: '==', value: target.pool}] : [];
  const stored = await store.query('workers', {where: [LIVING, ...ofPool]});
  return workerRecords.parseAll(stored, leftAlone(log));
}

/** Creates the document, running or rejected, or returns the document of an earlier message or delivery. */
function createExec(
  {store, objects, log, now}: Deps,
  {exec, target, argv, shell, timeout_s, requested_by}: ExecMessage,
  message_id: string,
  reason: string | undefined,
): Promise<Exec> {
  return store.transaction(async tx => {
    const earlier = await execRecords.get(tx, exec);
    if (earlier) return earlier;
    const at = now();
    const created: Exec = {
      ...{exec, target, argv, shell, timeout_s, requested_by, message_id},
      status: reason === undefined ? 'running' : 'rejected',
      reason: reason ?? null,
      is_assigned: false,
      ...{hosts: 0, hosts_done: 0, hosts_failed: 0},
      ...execTimes(timeout_s, at, KEPT_DAYS.commands),
      completed_at: reason === undefined ? null : iso(at),
      output_path: `gs://${objects.bucket}/execs/${exec}/`,
    };
    execRecords.set(tx, created);
    const who = `${requested_by ?? 'someone'} (message ${message_id})`;
    const text =
      reason === undefined
        ? `Command ${exec} of ${who} runs on ${target}: ${argv.join(' ')}`
        : `Command ${exec} of ${who} on ${target} is rejected: ${reason}`;
    log(reason === undefined ? 'INFO' : 'WARNING', text, {message_id});
    recordEvent(tx, {kind: 'control', message_id, text}, at);
    return created;
  });
}

/** Assigns the command to the hosts of each worker that is still alive. A worker with too many commands refuses it. */
async function assign({store, log, now, objects}: Deps, {exec, expire_at}: Exec, names: readonly string[]) {
  await store.transaction(async tx => {
    const targets = await Promise.all(names.map(name => workerRecords.read(log, tx, name)));
    const workers = targets.flatMap(worker => (worker && isAlive(worker) ? worker : []));
    const hosts = workers.flatMap(worker => hostsOf(worker).map(host => ({worker, host})));
    const assigned = await Promise.all(
      hosts.map(({worker, host}) => execHostRecords.get(tx, exec, worker.name, host)),
    );
    const at = iso(now());
    for (const [index, {worker, host}] of hosts.entries()) {
      if (assigned[index]) continue;
      const refused = workerProblem(worker);
      execHostRecords.set(tx, exec, {
        ...{worker: worker.name, incarnation: worker.incarnation, host},
        hostname: worker.hosts[host]?.hostname ?? null,
        status: refused ? 'refused' : 'waiting',
        exit_code: null,
        error: refused ?? null,
        started_at: null,
        ended_at: refused ? at : null,
        expire_at,
        output_path: `gs://${objects.bucket}/${execFolder(exec, worker.name, host)}`,
      });
      if (!refused) workerRecords.set(tx, withExec(worker, exec));
    }
  });
}

/** Closes the list of hosts, so that the command ends with its last host. */
async function closeAssignment({store}: Deps, exec: string): Promise<void> {
  const hosts = await store.count(paths.execHosts(exec));
  // Another delivery rejected the command after its document was lost.
  await execRecords.change(store, [exec], current =>
    current.status === 'running' ? {...current, is_assigned: true, hosts} : undefined,
  );
}
