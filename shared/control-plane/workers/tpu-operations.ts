/** Creates and deletes of nodes: publishes the actions of decisions, and handles topic `tpu`. */
import {createHash} from 'node:crypto';
import type {z} from 'zod';
import {TpuError} from '../../contracts/errors.ts';
import type {tpuMessage} from '../../contracts/messages/schemas.ts';
import {requireWorkerApi} from '../../contracts/settings/config.ts';
import {required} from '../../contracts/settings/identity-settings.ts';
import {priceOf} from '../../domain/billing/budget.ts';
import {workerEvent} from '../../domain/billing/cost.ts';
import {labelsOf} from '../../domain/deployment.ts';
import {hostsOfType} from '../../domain/fleet/accelerators.ts';
import {paths} from '../../domain/names.ts';
import {withChurn} from '../../domain/records/churn.ts';
import type {Pool} from '../../domain/records/pool.ts';
import type {Worker} from '../../domain/records/worker.ts';
import type {Zone} from '../../domain/records/zone.ts';
import {afterLostBoot, nextAfterRate} from '../../domain/tick/shared-documents.ts';
import {attemptOf} from '../../domain/worker/attempt.ts';
import {INCARNATION_LABEL, isForeign, isManaged, observationOf} from '../../domain/worker/nodes.ts';
import {afterLook} from '../../domain/worker/observation.ts';
import {createRefused, type WorkerAction} from '../../domain/worker/transitions.ts';
import {
  afterRefusal,
  limiterEvent,
  type RefusedNode,
  refusalsOf,
  refusedSince,
} from '../../domain/zone/limiter.ts';
import {withLimiter} from '../../domain/zone/placement.ts';
import type {Bus, TpuRequest} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import {wake} from '../calls/wake.ts';
import type {DecisionContext, Deps} from '../deps.ts';
import {
  attemptRecords,
  createsRecords,
  poolRecords,
  skipIfInvalid,
  workerRecords,
  zoneRecords,
} from '../documents/documents.ts';
import {recordEvent, recordEventNow} from '../documents/event-log.ts';
import {readPrices} from '../documents/prices.ts';
import {zoneOf} from '../documents/zones.ts';
import {ticketOf} from './tickets.ts';

export type TpuMessage = z.infer<typeof tpuMessage>;

/** Publishes each action, and retries a failed publish once; a repeated message has no further effect. */
export async function publishActions(bus: Bus, actions: readonly WorkerAction[]): Promise<void> {
  await forEachConcurrently(actions, ({kind, worker, incarnation}) => {
    const publish = () => bus.publish('tpu', {action: kind, worker, incarnation});
    return publish().catch(publish);
  });
}

/**
 * Creates or deletes a node if the slot's document still agrees with the message. A late message about an earlier incarnation does nothing. A
 * later list of nodes shows the outcome.
 */
export async function handleTpuMessage(deps: Deps, message: TpuMessage): Promise<void> {
  const worker = await workerRecords.get(deps.store, message.worker);
  const expected = message.action === 'create' ? 'creating' : 'deleting';
  if (worker?.phase !== expected || worker.incarnation !== message.incarnation) {
    deps.log('INFO', `Nothing to ${message.action}: ${message.worker} is ${worker?.phase ?? 'unknown'}`, {
      ...message,
    });
    return;
  }
  try {
    if (message.action === 'create') await createNode(deps, worker);
    else await deleteNode(deps, worker);
  } catch (error) {
    if (!(error instanceof TpuError)) throw error;
    const {kind, message: reason} = error;
    if (kind === 'transient' || (kind === 'rate' && message.action === 'delete')) throw error;
    deps.log('WARNING', reason, {worker: worker.name, kind});
    // A tick repeats the delete while the node exists.
    if (message.action === 'delete') await recordEventNow(deps, workerEvent(worker, reason));
    else if (kind === 'rate') await pauseCreates(deps, worker, reason);
    else await recordRefusal(deps, worker, kind, reason);
  }
}

/**
 * Creates the node. If its pool is gone or paused, or its price changed since the decision, the next tick decides again. If the zone has
 * refused another node since the request, it is not asked, because it would refuse this node too.
 */
async function createNode(deps: Deps, worker: Worker): Promise<void> {
  const {limiter} = await zoneOf(deps, deps.store, worker, deps.now());
  const refused = refusedSince(limiter, worker.asked_at);
  if (refused) throw new TpuError(refused.kind, worker.zone, refused.reason);
  const pool = await skipIfInvalid(deps.log, () =>
    poolRecords.find(deps.store, worker.pool, deps.config.pool),
  );
  const isPaused = pool?.limiter.cause === 'person';
  const usd_per_hour = pool ? priceOf(await readPrices(deps, [pool]), pool, worker.zone) : null;
  const isSame =
    usd_per_hour === worker.usd_per_hour && hostsOfType(pool?.accelerator ?? '') === worker.host_count;
  if (pool && !isPaused && isSame) {
    await deps.tpus.create(await nodeRequest(deps, pool, worker));
    // The next list shows whether the zone gives nodes again.
    if (limiter.state === 'probing') await wake(deps.bus);
    return;
  }
  const [before, is] = [worker.usd_per_hour, usd_per_hour].map(usd => (usd === null ? 'unknown' : `$${usd}`));
  const ofPrice = `its price per hour is ${is} and was ${before} when the create was planned, or its type has changed`;
  const ofPool = pool
    ? `a person paused pool "${worker.pool}"`
    : `pool "${worker.pool}" has no valid document`;
  await dropCreate(deps, worker, pool && !isPaused ? ofPrice : ofPool);
}

/** Google counts the creates of the whole project, so no pool creates a node until the pause ends. */
async function pauseCreates(deps: Deps, worker: Worker, reason: string): Promise<void> {
  await deps.store.transaction(async tx => {
    const creates = await createsRecords.read(deps.log, tx);
    createsRecords.set(tx, {...creates, next_at: nextAfterRate(deps.now())});
  });
  await dropCreate(deps, worker, reason);
}

/** Frees the slot of a node that is not created. The next request is for the same incarnation, and no zone counts a refusal. */
async function dropCreate(deps: Deps, worker: Worker, cause: string): Promise<void> {
  // An earlier delivery of the message may have made the node. Then the next list shows it, and its slot is not free.
  const made = await deps.tpus.get(worker.name, worker.zone);
  if (made && isManaged(made, deps.config.deployment)) return;
  await deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, worker.name);
    if (current?.phase !== 'creating' || current.incarnation !== worker.incarnation) return;
    const now = deps.now();
    const zone = await zoneOf(deps, tx, worker, now);
    await refuse({deps, tx, now}, current, {before: zone, after: zone}, cause);
    const text = `${worker.name} is not created: ${cause}; the next tick decides again`;
    recordEvent(tx, workerEvent(worker, text), now);
  });
}

/** Deletes the node. It is read first, because it may be foreign, or READY and billed already. A late list may have shown a node of ours. */
async function deleteNode(deps: Deps, worker: Worker): Promise<void> {
  const {ready_at, provider_state, queue_state} = worker;
  const {deployment} = deps.config;
  const isOurs = ready_at !== null || provider_state !== null || queue_state !== null;
  const tpu = await deps.tpus.get(worker.name, worker.zone).catch((error: Error) => {
    if (!isOurs) throw error;
    deps.log('WARNING', error.message, {worker: worker.name});
    return undefined;
  });
  if (tpu && isForeign(tpu, deployment)) return;
  if (tpu && ready_at === null)
    await workerRecords.change(deps.store, [worker.name], current => {
      if (current.phase !== 'deleting' || current.incarnation !== worker.incarnation) return undefined;
      const seen = afterLook(current, observationOf(tpu, deployment), deps.now());
      return seen.ready_at !== null && current.ready_at === null ? seen : undefined;
    });
  const isNodeOurs = tpu ? isManaged(tpu, deployment) : queue_state === null || provider_state !== null;
  // Our queued resource may end before this call. A node of the same name may belong to someone else, and stays.
  await deps.tpus.delete(worker.name, worker.zone, isNodeOurs ? undefined : 'queued');
}

/**
 * Records that the zone gave no node. The slot is free again, and its next request is for the same incarnation. The first refusal closes the
 * zone and wakes a tick, so that other zones take over.
 */
async function recordRefusal(deps: Deps, worker: Worker, kind: RefusedNode['kind'], reason: string) {
  const isFirst = await deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, worker.name);
    if (current?.phase !== 'creating' || current.incarnation !== worker.incarnation) return false;
    const now = deps.now();
    const before = await zoneOf(deps, tx, worker, now);
    const refused: RefusedNode = {kind, reason, isLate: false, asked_at: current.asked_at};
    const limiter = afterRefusal(before.limiter, refused, deps.config.placement, now);
    const after = withLimiter(before, limiter, now);
    await refuse({deps, tx, now}, current, {before, after}, reason);
    const text = limiterEvent(worker.zone, before.limiter, limiter);
    if (text === undefined) return false;
    const fold = refusalsOf(worker.pool, worker.zone, limiter);
    recordEvent(tx, workerEvent(worker, text, fold), now);
    if (limiter.state === before.limiter.state) return false;
    if (limiter.state === 'stopped')
      deps.log('ERROR', text, {worker: worker.name, signal: 'creates-stopped'});
    return true;
  });
  if (isFirst) await wake(deps.bus);
}

async function refuse(
  {deps, tx, now}: DecisionContext,
  worker: Worker,
  {before, after}: {before: Zone; after: Zone},
  cause: string,
) {
  const pool = await skipIfInvalid(deps.log, () => poolRecords.find(tx, worker.pool, deps.config.pool));
  const isRefusal = after.limiter.refusals > before.limiter.refusals;
  const accelerator = pool?.accelerator;
  const told = isRefusal && accelerator ? withChurn(after, accelerator, {refusals: 1}, now) : after;
  const given = afterLostBoot(told, pool, worker, deps.config.placement, now);
  if (given.zone !== before) zoneRecords.set(tx, given.zone);
  if (given.pool && given.pool !== pool) poolRecords.set(tx, given.pool);
  const refused = createRefused(worker, cause, 0, now);
  workerRecords.set(tx, refused);
  // A list has shown the node before, so its incarnation is over.
  if (refused.refused) return;
  const end = {worker: refused, death: {kind: 'setup', cause} as const};
  const attempt = attemptOf(worker, end, deps.config.logs_bucket, now);
  attemptRecords.set(tx, paths.attempt(worker.name, worker.incarnation), attempt);
}

/** Only IAM can open a shell on a node; no key in the project's metadata can. */
const SHELL_ACCESS = {'enable-oslogin': 'TRUE', 'block-project-ssh-keys': 'TRUE'};

async function nodeRequest(deps: Deps, pool: Pool, worker: Worker): Promise<TpuRequest> {
  const {config} = deps;
  // Without an account the node would get the default one, which may have far more rights than a worker needs.
  required(config.identity, 'on-tpu', ['worker_account', 'ticket_key']);
  const {name, zone} = worker;
  const {provider, accelerator, runtime_version, disk_gb, spot} = pool;
  return {
    ...{name, zone, provider, accelerator, runtime_version, disk_gb, spot},
    labels: {
      ...labelsOf(config.deployment),
      'gleaner-pool': worker.pool,
      [INCARNATION_LABEL]: String(worker.incarnation),
    },
    metadata: {
      ...SHELL_ACCESS,
      ...config.worker_metadata,
      'startup-script': await deps.startupScript(),
      'gleaner-worker': worker.name,
      'gleaner-incarnation': String(worker.incarnation),
      'gleaner-ticket': ticketOf(config.identity, 'on-tpu', worker),
      'gleaner-api': requireWorkerApi(config, 'on-tpu'),
      'gleaner-bucket': config.bucket,
      'gleaner-logs-bucket': config.logs_bucket,
      'gleaner-bundle': worker.bundle ?? config.bundle,
    },
    queue: queueOf(worker),
  };
}

/** Request of a queued resource. The id is the same for repeats of one incarnation, and differs for an equal number after a lost database. */
function queueOf({name, incarnation, phase_since_at, valid_until_at}: Worker): TpuRequest['queue'] {
  if (valid_until_at === null) return null;
  const hash = createHash('sha256').update(`${name}#${incarnation} ${phase_since_at}`).digest('hex');
  const request_id = hash.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-4$3-8$4-$5');
  return {valid_until_at, request_id};
}
