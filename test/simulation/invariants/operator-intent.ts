/** What people said is done once, is final where they were told so, and outlives the Store. */
import {outputsPrefix, paths} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Setting} from '../context.ts';
import {MOST_LATE_MINUTES} from '../faults.ts';
import {isBorn} from './nodes.ts';
import type {Verdict} from './violations.ts';

/** Fields that a message without settings sets. `start` of a run that has ended sets nothing. */
const FIELD_OF: Record<string, Record<string, unknown>> = {
  pause: {status: 'paused'},
  resume: {status: 'active'},
  delete: {held: true},
  recreate: {held: false},
  start: {},
  stop: {},
  retry: {},
  cancel: {},
  rebuild: {},
};

/** What a message made of the document that it is about. */
type Word = {path: string; version: number; spent_usd: number; cancelled: string | undefined};

/** Whether an order is left on a run or a pool. */
function isKept({version, status, cancelled_streams}: Document = {}): boolean {
  return (
    Number(version) > 0 || status === 'paused' || Boolean((cancelled_streams as string[] | undefined)?.length)
  );
}

export class Words {
  readonly #setting: Setting;
  readonly #verdict: Verdict;
  /** Control messages that must have left a record at the end, and those that had to be rejected. */
  #expected = new Map<string, 'rejected' | undefined>();
  /** By the id of the message; and those of messages that were done to their end. */
  readonly #said = new Map<string, Word>();
  readonly #kept: Word[] = [];
  /** Runs that somebody stopped, whether or not it has been heard. */
  readonly #stopped = new Set<string>();
  /** Runs that were stopped, streams that were cancelled, and workers that were deleted, for good. */
  readonly #final = new Set<string>();
  readonly #cancelled = new Set<string>();
  readonly #held = new Set<string>();
  /** By document and field: when the message that set it last was published, and the value that it set. */
  readonly #last = new Map<string, {published_at: string; value: unknown}>();

  constructor(setting: Setting, verdict: Verdict) {
    this.#setting = setting;
    this.#verdict = verdict;
  }

  onStop(run: string): void {
    this.#stopped.add(run);
  }

  expectRecord(message_id: string, outcome: 'rejected' | undefined): void {
    this.#expected.set(message_id, outcome);
  }

  onControl(id: string, before: Document | undefined, after: Document): void {
    this.#onSaid(id, after);
    this.#onOrdered(after);
    const {action} = /"action":"(?<action>\w+)"/.exec(String(after.message))?.groups ?? {};
    const isNonsense = this.#expected.get(id) === 'rejected';
    this.#setting.see(`people say: ${isNonsense ? 'nonsense' : action} (${after.outcome})`);
    this.#verdict.check(before === undefined, () => `control message ${id} was done twice`);
  }

  /** In the commit that records a message, the document that it is about is as the message has made it. */
  #onSaid(id: string, {message, outcome}: Document): void {
    if (outcome !== 'applied') return;
    const {action, run, stream} = JSON.parse(String(message));
    const path = run === undefined ? paths.pool('tpu') : paths.run(run);
    const document = this.#setting.store.peek(path);
    if (action === 'rebuild' || !(isKept(document) || action === 'cancel')) return;
    const {version, spent_usd, cost_usd} = document ?? {};
    const spent = Math.max(Number(spent_usd), Number(cost_usd ?? 0));
    const cancelled = action === 'cancel' ? paths.stream(run, stream) : undefined;
    this.#said.set(id, {path, version: Number(version), spent_usd: spent, cancelled});
  }

  /** Each field has the value of the message published last, whatever is delivered last; a stop applies however late. */
  #onOrdered({message, outcome, reason, published_at}: Document): void {
    const isHeard = outcome === 'applied' || /^outdated/.test(String(reason));
    if (!isHeard || typeof published_at !== 'string') return;
    const {action, run, worker, stream, if_version: _, pool: __, ...settings} = JSON.parse(String(message));
    const path = worker ? paths.worker(worker) : run ? paths.run(run) : paths.pool('tpu');
    const said = FIELD_OF[action] ?? (stream === undefined ? settings : {});
    for (const [field, value] of Object.entries(said)) {
      const last = this.#last.get(`${path} ${field}`);
      const isLater = !last || published_at >= last.published_at;
      if (isLater) this.#last.set(`${path} ${field}`, {published_at, value});
      const due = isLater ? value : last.value;
      const isSet = JSON.stringify(this.#setting.store.peek(path)?.[field]) === JSON.stringify(due);
      // A run may have ended, and money may have paused it, since the later message.
      this.#verdict.check(
        isSet || (field === 'status' && !(isLater && outcome === 'applied')),
        () => `${path} has another ${field} than ${JSON.stringify(due)}, which was said last`,
      );
      this.#verdict.check(
        isLater || outcome !== 'applied' || Object.keys(said).length > 1,
        () => `${message} of ${published_at} was applied over a message of ${last?.published_at}`,
      );
      if (!isLater) this.#setting.see('people say: an older word after a later one');
    }
  }

  /** A message was done to its end: what it said outlives the Store. */
  onObeyed(id: string, {action, run, worker}: Document): void {
    const {store} = this.#setting;
    const said = this.#said.get(id);
    // A resume may have come in between: of a run on which no order is left, no object is made.
    if (said && (said.cancelled || isKept(store.peek(said.path)))) this.#kept.push(said);
    const isCancelled = (path: string) => /^cancelled/.test(String(store.peek(path)?.last_error));
    if (said?.cancelled && isCancelled(said.cancelled)) this.#cancelled.add(said.cancelled);
    const path = paths.worker(String(worker));
    if (action === 'delete' && store.peek(path)?.held) this.#held.add(path);
    if (action !== 'stop' || store.peek(paths.run(String(run)))?.status !== 'cancelled') return;
    this.#final.add(String(run));
    const leased = store.collection(paths.streams(String(run))).filter(({data}) => data.lease !== null);
    this.#verdict.check(
      leased.length === 0,
      () => `run ${run} was stopped, and workers have ${leased.map(({id}) => id)}`,
    );
  }

  /** A document that is made is new, or is as the bucket has kept it. */
  onMade(path: string, after: Document): void {
    for (const kept of this.#kept.filter(kept => kept.path === path))
      this.#verdict.check(
        Number(after.version) >= kept.version && Number(after.spent_usd) >= kept.spent_usd - 1e-6,
        () => `${path} has version ${after.version} and $${after.spent_usd}, and had ${JSON.stringify(kept)}`,
      );
    this.#verdict.check(
      after.status !== 'active' || !path.startsWith('runs/') || !this.#hasOldShard(String(after.run)),
      () => `${path} was made again, and goes on by itself`,
    );
    this.#verdict.check(
      !this.#held.has(path) || after.held === true,
      () => `${path} was deleted, and is ${after.phase} again`,
    );
    this.#verdict.check(
      !this.#cancelled.has(path) || after.status === 'failed' || after.status === 'completed',
      () => `${path} was cancelled, and is ${after.status}`,
    );
  }

  /** Whether a run had a shard before the calls began that have led here. */
  #hasOldShard(run: string): boolean {
    const {clockwork, objects} = this.#setting;
    const since = clockwork.now - MOST_LATE_MINUTES * 60_000;
    const outputs = objects.list(outputsPrefix(run));
    return outputs.some(({name, created_at}) => /shard_/.test(name) && Date.parse(created_at) < since);
  }

  onRun(run: string, before: Document | undefined, {status}: Document): void {
    const isFinal = before?.status === 'cancelled' || this.#final.has(run);
    this.#verdict.check(
      !isFinal || status === 'cancelled',
      () => `run ${run} was stopped for good, and is ${status}`,
    );
    const isAwoken = before?.status === 'paused' && status === 'active';
    this.#verdict.check(
      !isAwoken || this.#verdict.isOrdered,
      () => `run ${run} was paused, and nobody said that it goes on`,
    );
  }

  onStream(path: string, before: Document, after: Document): void {
    if (after.status !== 'failed') this.#cancelled.delete(path);
    const isRevived = before.status === 'failed' && after.status === 'pending';
    const isSaid = this.#verdict.isOrdered || before.generation !== after.generation;
    this.#verdict.check(
      !isRevived || isSaid,
      () => `${path} was parked, and is tried again though nobody said so`,
    );
  }

  onWorker(name: string, before: Document, after: Document): void {
    if (!after.held) this.#held.delete(paths.worker(name));
    this.#verdict.check(
      !isBorn(before, after) || !before.held,
      () => `${name} was deleted, and is made again`,
    );
  }

  onWipe(): void {
    this.#expected = new Map();
    this.#last.clear();
  }

  atTheEnd(): void {
    const {store} = this.#setting;
    for (const run of this.#setting.runs()) {
      const isCancelled = store.peek(paths.run(run))?.status === 'cancelled';
      this.#verdict.check(
        !isCancelled || this.#stopped.has(run),
        () => `run ${run} is cancelled, and nobody stopped it`,
      );
    }
    for (const [id, outcome] of this.#expected) {
      const record = store.peek(paths.control(id));
      this.#verdict.check(record !== undefined, () => `control message ${id} left no record`);
      this.#verdict.check(
        outcome === undefined || record?.outcome === outcome,
        () => `control message ${id} was ${record?.outcome}: ${record?.message}`,
      );
    }
  }
}
