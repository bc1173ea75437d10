/** Requests of agents, and answers that depend on the settings of a pool. */
import {CallerRefused, NotUnderstood, Rejected} from '../../contracts/errors.ts';
import type {WorkerRequest} from '../../contracts/messages/schemas.ts';
import type {Pool} from '../../domain/records/pool.ts';
import {ok, type WorkerAnswer} from '../../domain/requests/requests.ts';
import {retryIn} from '../../domain/stream/spread.ts';
import type {Deps} from '../deps.ts';
import {leftAlone} from '../documents/documents.ts';

type Requests = {[Request in WorkerRequest as Request['action']]: Request};
export type AgentAction = Exclude<keyof Requests, 'ping'>;

/** A request, and the sha256 of the secret of the host that sent it. */
export type AgentRequest<Action extends AgentAction = AgentAction> = Requests[Action] & {
  secret_sha256: string;
};

/** Leased work, or why to ask again soon. `isRaced`: others took every stream. `isKept`: a larger job gathers this slice. Undefined: no work. */
export type GrantResult = {order: object} | {soon: string; isRaced: boolean; isKept?: boolean} | undefined;

/** Interval of the heartbeats of a pool: short if people wait for the pool. */
export function heartbeatOf({config}: Deps, pool: Pool | undefined): number {
  return Math.min(config.heartbeat_s, pool?.poll_s ?? config.heartbeat_s);
}

/** Time from TERM to the end of a job, and for the request that ends its lease. */
const ENDING_S = 15;

/** `fence_s`: an agent without an answer for so long ends its job, before another worker can get the lease. */
export function jobSettingsOf({config, objects}: Deps, pool: Pool | undefined) {
  const {checkpoints_bucket, lease_s} = config;
  return {
    pool,
    bucket: objects.bucket,
    checkpoints_bucket,
    fence_s: Math.max(lease_s - ENDING_S, (3 / 4) * lease_s),
  };
}

/** Spreads requests over streams and time. Two requests of one worker start at different places: one may have invalid documents. */
export function askerOf({worker, incarnation}: AgentRequest<'lease'>, now: number): string {
  return `${worker}#${incarnation} at ${now}`;
}

/** Asks a worker without work to come back after the `poll_s` of its pool. `asker` spreads the requests of many workers. */
export function waitFor({poll_s}: Pick<Pool, 'poll_s'>, asker: string, reason: string): WorkerAnswer {
  return ok({action: 'wait', retry_s: retryIn(poll_s, poll_s * 1.25, asker), reason});
}

/** The answer to a request that fails because of its sender or an invalid document; undefined for an error of ours. */
export function refusalOf({log}: Deps, error: unknown): {status: number; body: object} | undefined {
  if (!(error instanceof CallerRefused || error instanceof Rejected)) return undefined;
  const body = {error: error.message};
  if (error instanceof CallerRefused) {
    log(error.status === 403 ? 'ERROR' : 'WARNING', `Refused a caller: ${error.message}`);
    return {status: error.status, body};
  }
  if (!(error instanceof NotUnderstood)) return {status: 400, body};
  // Another release may understand the document, so the agent continues its work and asks again.
  leftAlone(log)(error);
  return {status: 503, body};
}
