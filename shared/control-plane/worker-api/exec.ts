import {decideEndExec, decideTakeExec} from '../../domain/requests/host-requests.ts';
import {hostsOf} from '../../domain/worker/hosts.ts';
import {poolOf} from '../caches/pool-cache.ts';
import {execHostRecords, execRecords, skipIfInvalid} from '../documents/documents.ts';
import {inTransaction} from './authenticate.ts';

/** Returns the command that a heartbeat named to the host. */
export const takeExec = inTransaction('exec', async (deps, tx, {worker, request, now}) => {
  const {exec: id, host} = request;
  const exec = await execRecords.read(deps.log, tx, id);
  const execHost = await skipIfInvalid(deps.log, () => execHostRecords.get(tx, id, worker.name, host));
  const pool = exec?.status === 'running' ? await poolOf(deps, worker.pool) : undefined;
  const {bucket} = deps.objects;
  return decideTakeExec({worker, exec, execHost, pool, bucket}, request, now);
});

export const endExec = inTransaction('exec-end', async (_, tx, {worker, request, now}) => {
  const {exec, host} = request;
  const hostOf = (each: number) => execHostRecords.get(tx, exec, worker.name, each);
  const execHost = await hostOf(host);
  const others = await Promise.all(hostsOf(worker).flatMap(each => (each === host ? [] : hostOf(each))));
  return decideEndExec({worker, execHost, others}, request, now);
});
