/**
 * Tasks: long work, page by page. `tasks/ID` keeps the cursor, so every delivery continues where the last one stopped, and a task of a
 * hundred thousand streams fits into the time limit of a function. The tick republishes open tasks that no delivery works on.
 */
import {z} from 'zod';
import {KEPT_DAYS} from '../../contracts/settings/config.ts';
import {describing, instant, orNull, stored, text} from '../../domain/fields.ts';
import {paths} from '../../domain/names.ts';
import {isOlderThan, iso, msOf} from '../../domain/time.ts';
import type {Bus, Filter, Store, Transaction} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Services} from '../calls/services.ts';
import {recordsOf} from './document-kind.ts';
import {leftAlone} from './documents.ts';
import {dueNotices} from './notices.ts';

/** Kinds of tasks. A task of an unknown kind is left to the release that opened it. */
const KINDS = ['register', 'rebuild', 'resync', 'finish', 'delete', 'prices', 'expire', 'notify'] as const;

export const task = stored({
  task: describing(KINDS).describe(
    'Kind of the task; `prices` is the daily refresh of prices, `expire` the daily deletion of the documents of old runs, `notify` sends notifications.',
  ),
  run: orNull(text).describe('Run of the task; null for all runs.'),
  status: z.enum(['open', 'done']).describe('`open` while pages are left, then `done`.'),
  cursor: text.describe('JSON of the place where the next delivery continues; empty at the first page.'),
  result: orNull(text).describe('Summary of the task; null without one.'),
  busy_until_at: orNull(instant).describe(
    'End of the time that a delivery has claimed the task for; null while no delivery works on it.',
  ),
  created_at: instant.describe('Time at which the task was opened last.'),
  updated_at: instant.describe('Time of the last page.'),
  expire_at: instant.describe(
    'Firestore deletes the document some time after this: 30 days after it was opened.',
  ),
});

export type Task = z.infer<typeof task>;
/** Name of a task. A `rebuild` without a run starts one task for each run; `resync` and `prices` have no run. */
export type TaskName = {task: Task['task']; run: string | null};

export const taskRecords = recordsOf(task);

const OPEN: Filter = {field: 'status', op: '==', value: 'open'};
/** If a delivery dies, another one claims its task this long after its last page. */
const BUSY_MS = 120_000;

export function taskId({task, run}: TaskName): string {
  return run === null ? task : `${task}-${run}`;
}

/** Opens the task at its first page, in the transaction of the command that asks for the task. Reads the task before the first write. */
export async function openTask(tx: Transaction, {task, run}: TaskName, now: number): Promise<void> {
  open(tx, await taskRecords.get(tx, paths.task(taskId({task, run}))), {task, run}, now);
}

/** Opens the task after the first write of a transaction, so it cannot be read: the document of its last run has expired. */
export function openTaskAgain(tx: Transaction, name: TaskName, now: number): void {
  open(tx, undefined, name, now);
}

function open(tx: Transaction, stored: Task | undefined, {task, run}: TaskName, now: number): void {
  taskRecords.set(tx, paths.task(taskId({task, run})), {
    ...stored,
    ...{task, run, status: 'open', cursor: '', result: null, busy_until_at: null},
    created_at: iso(now),
    updated_at: iso(now),
    expire_at: iso(now + KEPT_DAYS.events * 86_400_000),
  });
}

export async function publishTask(bus: Bus, {task, run}: TaskName): Promise<void> {
  await bus.publish('tasks', run === null ? {task} : {task, run});
}

/** True if a stored task makes another one unnecessary. */
type IsEnough = (stored: Task) => boolean;

export const isOpenTask: IsEnough = ({status}) => status === 'open';

export async function startTask(
  {store, bus, now}: Pick<Services, 'store' | 'bus' | 'now'>,
  name: TaskName,
  isEnough: IsEnough = () => false,
): Promise<void> {
  const isOpened = await store.transaction(async tx => {
    const stored = await taskRecords.get(tx, paths.task(taskId(name)));
    if (stored && isEnough(stored)) return false;
    open(tx, stored, name, now());
    return true;
  });
  if (isOpened) await publishTask(bus, name);
}

/** Claims the task for this delivery. Returns undefined if the task is not open or another delivery works on it. */
export async function claimTask({store, now}: Services, name: TaskName): Promise<Task | undefined> {
  const path = paths.task(taskId(name));
  return store.transaction(async tx => {
    const stored = await taskRecords.get(tx, path);
    const at = now();
    if (stored?.status !== 'open') return undefined;
    if (stored.busy_until_at !== null && msOf(stored.busy_until_at) > at) return undefined;
    const claimed: Task = {...stored, busy_until_at: iso(at + BUSY_MS), updated_at: iso(at)};
    taskRecords.set(tx, path, claimed);
    return claimed;
  });
}

/** Stores the end of a page. Returns undefined if the task was restarted or another delivery works on it. */
export async function saveTask(
  {store, now}: Services,
  claimed: Task,
  change: Partial<Pick<Task, 'cursor' | 'status' | 'result' | 'busy_until_at'>>,
): Promise<Task | undefined> {
  const path = paths.task(taskId(claimed));
  return store.transaction(async tx => {
    const stored = await taskRecords.get(tx, path);
    if (stored?.created_at !== claimed.created_at || stored.busy_until_at !== claimed.busy_until_at)
      return undefined;
    const at = now();
    const next: Task = {...stored, busy_until_at: iso(at + BUSY_MS), ...change, updated_at: iso(at)};
    taskRecords.set(tx, path, next);
    return next;
  });
}

/**
 * Republishes the open tasks that no delivery works on, sends notifications, and starts a resync `audit_s` after the last one started. The
 * first resync of a UTC day includes the refresh of prices and the deletion of old documents, so no tick has to read when these last ran.
 */
export async function publishOpenTasks(deps: Services): Promise<void> {
  const {store, bus, now, config, log} = deps;
  const stored = await store.query('tasks', {where: [OPEN]});
  const open = taskRecords.parseAll(stored, leftAlone(log)).filter(({task}) => KINDS.includes(task));
  const isIdle = ({busy_until_at}: Task) => busy_until_at === null || isOlderThan(busy_until_at, 0, now());
  await forEachConcurrently(open.filter(isIdle), found => publishTask(bus, found));
  if (await hasDueNotice(deps)) await startTask(deps, {task: 'notify', run: null}, isOpenTask);
  if (open.some(({task}) => task === 'resync')) return;
  const last = await readTask(store, {task: 'resync', run: null});
  if (!last || isOlderThan(last.created_at, config.audit_s - 30, now())) {
    await startTask(deps, {task: 'resync', run: null});
    if (last?.created_at.slice(0, 10) === iso(now()).slice(0, 10)) return;
    for (const task of ['prices', 'expire'] as const) await startTask(deps, {task, run: null}, isOpenTask);
  }
}

/** True if a notification waits for its delivery. Without a receiver, nothing is read. */
async function hasDueNotice({store, now, config}: Services): Promise<boolean> {
  if (config.notify === null) return false;
  const where = [dueNotices(now())];
  return (await store.query('notices', {where, order_by: {field: 'next_at'}, limit: 1})).length > 0;
}

export function readTask(store: Store, name: TaskName): Promise<Task | undefined> {
  return taskRecords.get(store, paths.task(taskId(name)));
}
