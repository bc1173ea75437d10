/**
 * The releases of the functions: current and next. The next release has fields that the current release does not know.
 * During a rollout both releases work on the same documents and messages.
 */
import {getEnvironmentData, setEnvironmentData} from 'node:worker_threads';
import {crc32} from 'node:zlib';
import type {TickQueue} from '../../../shared/control-plane/calls/tick-queue.ts';
import type {withNotices} from '../../../shared/control-plane/documents/notices.ts';
import type {withRunMarks} from '../../../shared/control-plane/documents/run-marks.ts';
import type {tpuConstraint} from '../../../shared/domain/worker/tpu-constraint.ts';
import {type Memory, newMemory} from '../../support/fakes/deps.ts';
import type {Handlers, WorkerApi} from '../../support/world/function-calls.ts';
import {type Edit, type Splice, spliceAll} from './anchors.ts';
import {loadChanged} from './edits.ts';

export type Code = {
  handlers: Handlers;
  workerApi: WorkerApi;
  newTickQueue: (...clock: ConstructorParameters<typeof TickQueue>) => TickQueue;
  withRunMarks: typeof withRunMarks;
  withNotices: typeof withNotices;
  tpuConstraint: typeof tpuConstraint;
  newMemory: () => Memory;
};
/** Only worlds with a rollout have a `next` release. */
export type Codes = {current: Code; next: Code | undefined};

/** `next`: the next release. `small pages`: the current release with pages so small that a wide world needs more than one. `tiny pages`: that any world does. */
export type Release = 'current' | 'next' | 'small pages' | 'tiny pages';

/** Counters that only the next release adds to documents. Neither release may lose or decrease them. */
export const NEXT_RELEASE_COUNTERS = [
  'grant_count',
  'create_count',
  'request_count',
  'fold_count',
  'scale_count',
];

export const EDITS: Record<Release, Edit[]> = {
  current: [],
  // A nested field in every document, a counter for some kinds, a field for leases and creates, new words, and a field for TPU messages.
  next: [
    {
      in: 'recordsOf',
      within: '($tx, $path, $value) => {$$steps}',
      find: '$isNamed ? {release: $release} : {}',
      replace:
        "$isNamed ? {release: $release, next_release: {kind: 'tide', writes: ($value.next_release?.writes ?? 0) + 1}} : {}",
    },
    {
      in: 'recordEvent',
      find: '{...$event, text: $text, at: $at, $$expiry}',
      replace: "{...$event, kind: 'tide', text: $text, at: $at, $$expiry}",
    },
    {
      in: 'endByDeath',
      within: "$isMachineDeath($death) ? $failed('machine', $error) : $other",
      find: '$preempted($error)',
      replace: "{outcome: 'preempted', cause: 'evicted', error: $error}",
    },
    {
      in: 'streamDocument',
      within: '$stored({run: $run, stream: $stream, worker_id: $count, $$fields})',
      find: 'worker_id: $count',
      replace: 'worker_id: $count, grant_count: $count.default(0)',
    },
    {
      in: 'grantLease',
      within: "{$$before; const $lease = $of; return {...$stream, status: 'in_progress', $$fields};}",
      find: '{$$holder, epoch: $epoch}',
      replace: "{$$holder, granted_by: 'next', epoch: $epoch}",
    },
    {
      in: 'grantLease',
      find: "return {...$stream, status: 'in_progress', $$fields};",
      replace:
        "return {...$stream, grant_count: ($stream.grant_count ?? 0) + 1, status: 'in_progress', $$fields};",
    },
    {
      in: 'workerDocument',
      within: '$stored({name: $name, pool: $pool, zone: $zone, slot: $count, $$fields})',
      find: 'slot: $count',
      replace: 'slot: $count, create_count: $count.default(0)',
    },
    {
      in: 'toCreating',
      within: "$enter($worker, 'creating', $now, $fields)",
      find: 'born_at: $born_at',
      replace: 'create_count: ($worker.create_count ?? 0) + 1, born_at: $born_at',
    },
    {
      in: 'zoneDocument',
      within: '$stored({zone: $zone, pool: $pool, $$fields})',
      find: 'losses: $z.array($loss).describe($text)',
      replace: 'losses: $z.array($loss).describe($text), request_count: $z.number().default(0)',
    },
    {
      in: 'withLimiter',
      within: '$limiter === $zone.limiter ? $zone : {...$zone, limiter: $limiter, updated_at: $now}',
      find: '{...$zone, limiter: $limiter, updated_at: $now}',
      replace:
        "{...$zone, limiter: {...$limiter, by: 'next'}, request_count: ($zone.request_count ?? 0) + 1, updated_at: $now}",
    },
    {
      in: 'runDocument',
      within: '$stored({run: $run, status: $status, reason: $reason, $$fields})',
      find: 'preemptions: $orNull($count).describe($text)',
      replace: 'preemptions: $orNull($count).describe($text), fold_count: $count.default(0)',
    },
    {
      in: 'decideRunAction',
      find: '{...$run, message_times: $said, status: $status, updated_at: $now}',
      replace:
        '{...$run, fold_count: ($run.fold_count ?? 0) + 1, message_times: $said, status: $status, updated_at: $now}',
    },
    {
      in: 'poolDocument',
      within: '$stored({pool: $pool, ...$terms, $$fields})',
      find: 'source_version: $count.describe($text)',
      replace: 'source_version: $count.describe($text), scale_count: $count.default(0)',
    },
    {
      in: 'decideScale',
      find: '{...$pool, ...$current, message_times: $said, version: $version}',
      replace:
        '{...$pool, ...$current, scale_count: ($pool.scale_count ?? 0) + 1, message_times: $said, version: $version}',
    },
    {
      in: 'publishActions',
      within: "$bus.publish('tpu', $message)",
      find: '{action: $kind, worker: $worker, incarnation: $incarnation}',
      replace: "{action: $kind, worker: $worker, incarnation: $incarnation, requested_by: 'next'}",
    },
    {
      in: 'tpuMessage',
      find: "action: $z.enum(['create', 'delete'])",
      replace: "action: $z.enum(['create', 'delete']), requested_by: $z.string().default('current')",
    },
  ],
  'small pages': withPages({listed: 7, named: 11, audited: 4, batch: 3}),
  'tiny pages': withPages({listed: 2, named: 2, audited: 2, batch: 1}),
};

/** Sizes of pages: of streams, of names in the bucket, of audited workers, and of what one transaction changes. */
function withPages({
  listed,
  named,
  audited,
  batch,
}: Record<'listed' | 'named' | 'audited' | 'batch', number>): Edit[] {
  return [
    {
      in: 'pagesOf',
      within: 'for (let $limit = $first; ; $limit = $next) $body',
      find: 'Math.min($most, $size)',
      constant: '$size',
      replace: `${listed}`,
    },
    {
      in: 'reconcileWorkers',
      find: 'const $batch = $queue.slice($first, $first + $size);',
      constant: '$size',
      replace: `${batch}`,
    },
    {
      in: 'foldPage',
      find: '$store.query($streams, {...$after, limit: $size})',
      constant: '$size',
      replace: `${listed}`,
    },
    {
      in: 'registerPage',
      find: '$listed.length < $size ? undefined : $listed.at(-1)?.name',
      constant: '$size',
      replace: `${listed}`,
    },
    {
      in: 'countPage',
      within: "{const $limit = $size; const $listed = await $objects.list('datasets/', $page); $$rest}",
      find: 'const $limit = 5000;',
      replace: `const $limit = ${named};`,
    },
    {
      in: 'rebuildPage',
      find: '$objects.list($prefix($run.run), {...$start, limit: $size})',
      constant: '$size',
      replace: `${listed}`,
    },
    {
      in: 'auditPage',
      find: '$page.length < $size ? undefined : $page.at(-1)?.id',
      constant: '$size',
      replace: `${audited}`,
    },
    {
      in: 'applyToLeases',
      within: '$notices.flatMap(({run: $run, workers: $workers}) => $batches)',
      find: '$batchesOf($workers, $size)',
      constant: '$size',
      replace: `${batch}`,
    },
  ];
}

const loading = new Map<string, Promise<Code>>();

/** Loads a release with the changes of a mistake when the first world needs it. */
export function loadCode(release: Release, mistake: readonly Splice[] = []): Promise<Code> {
  const splices = [...changesOf(release), ...mistake];
  const mark = splices.length > 0 ? `?${crc32(JSON.stringify(splices))}` : '';
  const known = loading.get(mark);
  if (known) return known;
  if (mark) loadChanged(splices, mark);
  const code = load(mark);
  loading.set(mark, code);
  return code;
}

/** Finds the places of all edits now. Threads that start later receive them. */
export function findChanges(): void {
  for (const release of Object.keys(EDITS)) changesOf(release as Release);
}

function changesOf(release: Release): Splice[] {
  const known = getEnvironmentData(release) as Splice[] | undefined;
  if (known) return known;
  const found = spliceAll(EDITS[release]);
  setEnvironmentData(release, found);
  return found;
}

async function load(mark: string): Promise<Code> {
  const names = ['object', 'control', 'tpu', 'tick', 'task', 'job', 'exec'].map(topic => `on-${topic}`);
  const functions = [...names, 'worker-api'].map(name => `../../../functions/${name}.ts`);
  const caches = ['active-runs', 'open-runs', 'pool-cache'].map(name => `caches/${name}`);
  const documents = ['run-marks', 'notices'].map(name => `documents/${name}`);
  const parts = ['calls/tick-queue', ...documents, ...caches].map(
    name => `../../../shared/control-plane/${name}.ts`,
  );
  const views = ['../../../shared/domain/worker/tpu-constraint.ts'];
  const files = [...functions, ...parts, ...views].map(file => file + mark);
  const {workerApi, TickQueue, ActiveRuns, newOpenRuns, KnownPools, ...on} = Object.assign(
    {},
    ...(await Promise.all(files.map(file => import(file)))),
  );
  const handlers = {
    ...{object: on.onObject, control: on.onControl, tpu: on.onTpu, tick: on.onTick},
    ...{tasks: on.onTask, job: on.onJob, exec: on.onExec},
  };
  return {
    ...{handlers, workerApi, withRunMarks: on.withRunMarks, withNotices: on.withNotices},
    tpuConstraint: on.tpuConstraint,
    newTickQueue: clock => new TickQueue(clock),
    newMemory: () => newMemory({ActiveRuns, newOpenRuns, KnownPools}),
  };
}
