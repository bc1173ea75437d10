/**
 * The releases that function instances run: this release, and the next release with fields that this release does not know.
 * During a rollout both work on the same documents and messages.
 */
import type {Handlers, WorkerApi} from '../support/function-calls.ts';
import {type Edit, loadEdited} from './edits.ts';

export type Code = {handlers: Handlers; workerApi: WorkerApi};
/** Only worlds with a rollout have `tomorrow`, the next release. */
export type Codes = {today: Code; tomorrow: Code | undefined};

/** Pages and batches so small that a wide world has more than one of each. */
const SMALL_PAGES: Edit[] = [
  {file: 'shared/control-plane/state/pages.ts', find: 'const PAGE = 500;', replace: 'const PAGE = 7;'},
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

const MARK = '?tomorrow';

/** Counts that the next release keeps in documents. No document of this release has them, and neither release may lose them. */
export const COUNTED_TOMORROW = ['grants', 'lives', 'asked', 'told', 'scaled'];

/** Adds a field to each kind of document, two fields inside of lists and maps, and one to each message of a machine. */
const TOMORROW: Edit[] = [
  {
    file: 'shared/control-plane/state/document-schemas.ts',
    find: '  crc32c: text,\n',
    replace: '  crc32c: text,\n  grants: count.default(0),\n',
  },
  {
    file: 'shared/domain/stream/lease.ts',
    find: 'const lease = {...holder, epoch}',
    replace: "const lease = {...holder, granted_by: 'tomorrow', epoch}",
  },
  {
    file: 'shared/domain/stream/lease.ts',
    find: "return {...stream, status: 'in_progress', epoch, lease,",
    replace: "return {...stream, grants: (stream.grants ?? 0) + 1, status: 'in_progress', epoch, lease,",
  },
  {
    file: 'shared/control-plane/state/document-schemas.ts',
    find: '  slot: count,\n',
    replace: '  slot: count,\n  lives: count.default(0),\n',
  },
  {
    file: 'shared/domain/worker/transitions.ts',
    find: '    asked_at: iso(now),\n    ready_at: null,\n',
    replace: '    asked_at: iso(now),\n    ready_at: null,\n    lives: (worker.lives ?? 0) + 1,\n',
  },
  {
    file: 'shared/control-plane/state/document-schemas.ts',
    find: '  blocked_reason: text.nullable(),\n',
    replace: '  blocked_reason: text.nullable(),\n  asked: count.default(0),\n',
  },
  {
    file: 'shared/domain/fleet/placement.ts',
    find: '{asked_at: iso(now)}]',
    replace: "{asked_at: iso(now), by: 'tomorrow'}], asked: (zone.asked ?? 0) + 1",
  },
  {
    file: 'shared/control-plane/state/document-schemas.ts',
    find: '  streams_pending: count,\n',
    replace: '  streams_pending: count,\n  told: count.default(0),\n',
  },
  {
    file: 'shared/domain/commands.ts',
    find: '{...run, said, status, updated_at: iso(now)}',
    replace: '{...run, told: (run.told ?? 0) + 1, said, status, updated_at: iso(now)}',
  },
  {
    file: 'shared/control-plane/state/document-schemas.ts',
    find: '  workers_per_zone: count,\n',
    replace: '  workers_per_zone: count,\n  scaled: count.default(0),\n',
  },
  {
    file: 'shared/domain/settings.ts',
    find: '{...pool, ...current,',
    replace: '{...pool, ...current, scaled: (pool.scaled ?? 0) + 1,',
  },
  {
    file: 'shared/control-plane/workers/tpu-operations.ts',
    find: '{action: kind, worker, incarnation}',
    replace: "{action: kind, worker, incarnation, asked_by: 'tomorrow'}",
  },
  {
    file: 'shared/contracts/schemas.ts',
    find: "  action: z.enum(['create', 'delete']),\n",
    replace: "  action: z.enum(['create', 'delete']),\n  asked_by: z.string().default('today'),\n",
  },
];

export const TODAY = await load('');

const SMALL = '?small-pages';
const loading = new Map<string, Promise<Code>>();

/** A copy of the code, loaded when the first world needs it. */
function copy(name: string, edits: readonly Edit[], mark: string): Promise<Code> {
  const known = loading.get(mark);
  if (known) return known;
  loadEdited(name, edits, mark);
  const code = load(mark);
  loading.set(mark, code);
  return code;
}

export const tomorrow = () => copy('tomorrow', TOMORROW, MARK);
export const withSmallPages = () => copy('small pages', SMALL_PAGES, SMALL);

async function load(mark: string): Promise<Code> {
  const [{onObject}, {onControl}, {onTpu}, {onTick}, {onTask}, {workerApi}] = await Promise.all([
    import(`../../functions/on-object.ts${mark}`),
    import(`../../functions/on-control.ts${mark}`),
    import(`../../functions/on-tpu.ts${mark}`),
    import(`../../functions/on-tick.ts${mark}`),
    import(`../../functions/on-task.ts${mark}`),
    import(`../../functions/worker-api.ts${mark}`),
  ]);
  const handlers = {object: onObject, control: onControl, tpu: onTpu, tick: onTick, tasks: onTask};
  return {handlers, workerApi};
}
