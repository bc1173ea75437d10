/**
 * The releases of the functions: current and next. The next release has fields that the current release does not know.
 * During a rollout both releases work on the same documents and messages.
 */
import type {Handlers, WorkerApi} from '../support/function-calls.ts';
import {type Edit, loadEdited} from './edits.ts';

export type Code = {handlers: Handlers; workerApi: WorkerApi};
/** Only worlds with a rollout have a `next` release. */
export type Codes = {current: Code; next: Code | undefined};

/** Page and batch sizes so small that a wide world needs more than one page and batch. */
const SMALL_PAGES: Edit[] = [
  {file: 'shared/control-plane/documents/pages.ts', find: 'const PAGE = 500;', replace: 'const PAGE = 7;'},
  {
    file: 'shared/control-plane/workers/reconcile-workers.ts',
    find: 'const MOST_SLOTS = 50;',
    replace: 'const MOST_SLOTS = 3;',
  },
  {
    file: 'shared/control-plane/runs/run-result.ts',
    find: 'const PAGE = 500;',
    replace: 'const PAGE = 7;',
  },
  {
    file: 'shared/control-plane/streams/resync-streams.ts',
    find: 'const LISTED = 500;',
    replace: 'const LISTED = 7;',
  },
  {
    file: 'shared/control-plane/streams/resync-streams.ts',
    find: 'const limit = 5000;',
    replace: 'const limit = 11;',
  },
  {
    file: 'shared/control-plane/streams/rebuild-streams.ts',
    find: 'const LISTED = 500;',
    replace: 'const LISTED = 7;',
  },
  {
    file: 'shared/control-plane/streams/audit-streams.ts',
    find: 'const PAGE = 500;',
    replace: 'const PAGE = 4;',
  },
  {
    file: 'shared/control-plane/streams/revoke-leases.ts',
    find: 'const MOST_TOLD = 50;',
    replace: 'const MOST_TOLD = 3;',
  },
];

const NEXT_RELEASE = '?next-release';

/** Counters that only the next release adds to documents. Neither release may lose or decrease them. */
export const NEXT_RELEASE_COUNTERS = [
  'grant_count',
  'create_count',
  'request_count',
  'fold_count',
  'scale_count',
];

/** Adds a counter to each kind of document, a field to leases and creates, and a field to each TPU message. */
const NEXT_RELEASE_EDITS: Edit[] = [
  {
    file: 'shared/control-plane/documents/document-schemas.ts',
    find: '  crc32c: text,\n',
    replace: '  crc32c: text,\n  grant_count: count.default(0),\n',
  },
  {
    file: 'shared/domain/stream/lease.ts',
    find: 'const lease = {...holder, epoch}',
    replace: "const lease = {...holder, granted_by: 'next', epoch}",
  },
  {
    file: 'shared/domain/stream/lease.ts',
    find: "return {...stream, status: 'in_progress', epoch, lease,",
    replace:
      "return {...stream, grant_count: (stream.grant_count ?? 0) + 1, status: 'in_progress', epoch, lease,",
  },
  {
    file: 'shared/control-plane/documents/document-schemas.ts',
    find: '  slot: count,\n',
    replace: '  slot: count,\n  create_count: count.default(0),\n',
  },
  {
    file: 'shared/domain/worker/transitions.ts',
    find: '    asked_at: iso(now),\n    ready_at: null,\n',
    replace:
      '    asked_at: iso(now),\n    ready_at: null,\n    create_count: (worker.create_count ?? 0) + 1,\n',
  },
  {
    file: 'shared/control-plane/documents/document-schemas.ts',
    find: '  blocked_reason: text.nullable(),\n',
    replace: '  blocked_reason: text.nullable(),\n  request_count: count.default(0),\n',
  },
  {
    file: 'shared/domain/zone/placement.ts',
    find: '{asked_at: iso(now)}]',
    replace: "{asked_at: iso(now), by: 'next'}], request_count: (zone.request_count ?? 0) + 1",
  },
  {
    file: 'shared/control-plane/documents/document-schemas.ts',
    find: '  streams_pending: count,\n',
    replace: '  streams_pending: count,\n  fold_count: count.default(0),\n',
  },
  {
    file: 'shared/domain/commands/commands.ts',
    find: '{...run, said, status, updated_at: iso(now)}',
    replace: '{...run, fold_count: (run.fold_count ?? 0) + 1, said, status, updated_at: iso(now)}',
  },
  {
    file: 'shared/control-plane/documents/document-schemas.ts',
    find: '  workers_per_zone: count,\n',
    replace: '  workers_per_zone: count,\n  scale_count: count.default(0),\n',
  },
  {
    file: 'shared/domain/commands/settings.ts',
    find: '{...pool, ...current,',
    replace: '{...pool, ...current, scale_count: (pool.scale_count ?? 0) + 1,',
  },
  {
    file: 'shared/control-plane/workers/tpu-operations.ts',
    find: '{action: kind, worker, incarnation}',
    replace: "{action: kind, worker, incarnation, requested_by: 'next'}",
  },
  {
    file: 'shared/contracts/schemas.ts',
    find: "  action: z.enum(['create', 'delete']),\n",
    replace: "  action: z.enum(['create', 'delete']),\n  requested_by: z.string().default('current'),\n",
  },
];

export const CURRENT_CODE = await load('');

const SMALL_PAGES_MARK = '?small-pages';
const loading = new Map<string, Promise<Code>>();

/** Loads an edited copy of the code when the first world needs it. */
function loadCopy(name: string, edits: readonly Edit[], mark: string): Promise<Code> {
  const known = loading.get(mark);
  if (known) return known;
  loadEdited(name, edits, mark);
  const code = load(mark);
  loading.set(mark, code);
  return code;
}

export const loadNextRelease = () => loadCopy('next release', NEXT_RELEASE_EDITS, NEXT_RELEASE);
export const loadSmallPages = () => loadCopy('small pages', SMALL_PAGES, SMALL_PAGES_MARK);

async function load(mark: string): Promise<Code> {
  const [{onObject}, {onControl}, {onTpu}, {onTick}, {onTask}, {onJob}, {onExec}, {workerApi}] =
    await Promise.all([
      import(`../../functions/on-object.ts${mark}`),
      import(`../../functions/on-control.ts${mark}`),
      import(`../../functions/on-tpu.ts${mark}`),
      import(`../../functions/on-tick.ts${mark}`),
      import(`../../functions/on-task.ts${mark}`),
      import(`../../functions/on-job.ts${mark}`),
      import(`../../functions/on-exec.ts${mark}`),
      import(`../../functions/worker-api.ts${mark}`),
    ]);
  const handlers = {
    object: onObject,
    control: onControl,
    tpu: onTpu,
    tick: onTick,
    tasks: onTask,
    job: onJob,
    exec: onExec,
  };
  return {handlers, workerApi};
}
