import {decideEndExec, decideTakeExec} from '../../domain/exec/host-requests.ts';
import {hostsOf} from '../../domain/worker/hosts.ts';
import type {RequestDecision} from '../../domain/worker/requests.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid} from '../documents/documents.ts';
import {execHostRecords, execRecords} from '../documents/exec-documents.ts';
import type {AuthenticatedRequest} from './answers.ts';

/** Answers the command that a heartbeat named to the host. */
export async function takeExec(
  deps: Deps,
  tx: Transaction,
  worker: Worker,
  request: AuthenticatedRequest<'exec'>,
  now: number,
): Promise<RequestDecision> {
  const {exec: id, host} = request;
  const exec = await execRecords.read(deps.log, tx, id);
  const execHost = await skipIfInvalid(deps.log, () => execHostRecords.get(tx, id, worker.name, host));
  const pool = exec?.status === 'running' ? await poolOf(deps, worker.pool) : undefined;
  const {bucket} = deps.objects;
  return decideTakeExec({worker, exec, execHost, pool, bucket}, request, now);
}

/** Records the end of the command on the host. */
export async function endExec(
  _: Deps,
  tx: Transaction,
  worker: Worker,
  request: AuthenticatedRequest<'exec-end'>,
  now: number,
): Promise<RequestDecision> {
  const hostOf = (host: number) => execHostRecords.get(tx, request.exec, worker.name, host);
  const execHost = await hostOf(request.host);
  const others = await Promise.all(
    hostsOf(worker)
      .filter(host => host !== request.host)
      .map(hostOf),
  );
  return decideEndExec({worker, execHost, others}, request, now);
}
