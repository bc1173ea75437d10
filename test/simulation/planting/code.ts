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
import type {Handlers, WorkerApi} from '../../world/bus.ts';
import {type Memory, newMemory} from '../../world/deps.ts';
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
  ...['grant_count', 'create_count', 'request_count'],
  ...['fold_count', 'scale_count'],
];

export const EDITS: Record<Release, Edit[]> = {
  current: [],
  // A nested field in every document, a counter for some kinds, a field for leases and creates, new words, and a field for TPU messages.
  next: [
    {
      in: 'recordsOf',
      find: '$IS_NAMED ? {release: $RELEASE} : {}',
      replace:
        "$IS_NAMED ? {release: $RELEASE, next_release: {kind: 'tide', writes: (value.next_release?.writes ?? 0) + 1}} : {}",
    },
    {
      in: 'recordEvent',
      find: '{...$EVENT, text, at: $AT, $$$EXPIRY}',
      replace: "{...$EVENT, kind: 'tide', text: text, at: $AT, $$$EXPIRY}",
    },
    {
      in: 'endByDeath',
      find: 'preempted($ERROR)',
      replace: "{outcome: 'preempted', cause: 'evicted', error: $ERROR}",
    },
    {
      in: 'streamDocument',
      find: 'worker_id: $COUNT',
      replace: 'worker_id: $COUNT, grant_count: $COUNT.default(0)',
    },
    {in: 'grantLease', find: '{$$$HOLDER, epoch}', replace: "{$$$HOLDER, granted_by: 'next', epoch: epoch}"},
    {
      in: 'grantLease',
      find: "return {...$STREAM, status: 'in_progress', $$$FIELDS};",
      replace:
        "return {...$STREAM, grant_count: ($STREAM.grant_count ?? 0) + 1, status: 'in_progress', $$$FIELDS};",
    },
    {in: 'workerDocument', find: 'slot: $COUNT', replace: 'slot: $COUNT, create_count: $COUNT.default(0)'},
    {
      in: 'toCreating',
      find: 'born_at: $BORN_AT',
      replace: 'create_count: (worker.create_count ?? 0) + 1, born_at: $BORN_AT',
    },
    {
      in: 'zoneDocument',
      find: 'losses: $Z.array($LOSS).describe($TEXT)',
      replace: 'losses: $Z.array($LOSS).describe($TEXT), request_count: $Z.number().default(0)',
    },
    {
      in: 'withLimiter',
      find: '{...$ZONE, limiter, updated_at: $NOW}',
      replace:
        "{...$ZONE, limiter: {...limiter, by: 'next'}, request_count: ($ZONE.request_count ?? 0) + 1, updated_at: $NOW}",
    },
    {
      in: 'runDocument',
      find: 'preemptions: $OR_NULL($COUNT).describe($TEXT)',
      replace: 'preemptions: $OR_NULL($COUNT).describe($TEXT), fold_count: $COUNT.default(0)',
    },
    {
      in: 'decideRunAction',
      find: '{...$RUN, message_times, status, updated_at: $NOW}',
      replace:
        '{...$RUN, fold_count: ($RUN.fold_count ?? 0) + 1, message_times: message_times, status: status, updated_at: $NOW}',
    },
    {
      in: 'poolDocument',
      find: 'source_version: $COUNT.describe($TEXT)',
      replace: 'source_version: $COUNT.describe($TEXT), scale_count: $COUNT.default(0)',
    },
    {
      in: 'decideScale',
      find: '{...$POOL, ...$CURRENT, message_times, version: $VERSION}',
      replace:
        '{...$POOL, ...$CURRENT, scale_count: ($POOL.scale_count ?? 0) + 1, message_times: message_times, version: $VERSION}',
    },
    {
      in: 'publishActions',
      find: '{action: $KIND, worker, incarnation}',
      replace: "{action: $KIND, worker: worker, incarnation: incarnation, requested_by: 'next'}",
    },
    {
      in: 'tpuMessage',
      find: "action: $Z.enum(['create', 'delete'])",
      replace: "action: $Z.enum(['create', 'delete']), requested_by: $Z.string().default('current')",
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
  const sizes: [file: string, constant: string, now: number, size: number][] = [
    ['documents/pages.ts', 'PAGE', 500, listed],
    ['workers/reconcile-workers.ts', 'MOST_SLOTS', 50, batch],
    ['tasks/finish-run.ts', 'PAGE', 500, listed],
    ['streams/resync-streams.ts', 'LISTED', 500, listed],
    ['streams/resync-streams.ts', 'limit', 5000, named],
    ['streams/rebuild-streams.ts', 'LISTED', 500, listed],
    ['streams/audit-streams.ts', 'PAGE', 500, audited],
    ['tick/apply-plan.ts', 'MOST_NOTIFIED', 50, batch],
  ];
  return sizes.map(([file, constant, now, size]) => ({
    in: file,
    find: `const ${constant} = ${now};`,
    replace: `const ${constant} = ${size};`,
  }));
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
