/** Messages of operators apply once and in order, and final messages stay final, until the Store is lost. */
import {outputsPrefix, paths, streamPrefix} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import {MOST_LATE_MINUTES} from '../faults.ts';
import {isNewIncarnation} from './nodes.ts';
import type {Violations} from './violations.ts';

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

export class OperatorIntent {
  readonly #context: Context;
  readonly #violations: Violations;
  /** Control messages that must have left a record at the end, and those that had to be rejected. */
  #expected = new Map<string, 'rejected' | undefined>();
  /** Runs with a published stop, handled or not. */
  readonly #stopped = new Set<string>();
  /** Runs that were stopped, streams that were cancelled, and workers that were deleted, for good. */
  readonly #final = new Set<string>();
  readonly #cancelled = new Set<string>();
  readonly #held = new Set<string>();
  /** By document and field: when the message that set it last was published, and the value that it set. */
  readonly #last = new Map<string, {published_at: string; value: unknown}>();

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onStop(run: string): void {
    this.#stopped.add(run);
  }

  expectRecord(message_id: string, outcome: 'rejected' | undefined): void {
    this.#expected.set(message_id, outcome);
  }

  onControl(id: string, before: Document | undefined, after: Document): void {
    this.#onMessage(after);
    const isNonsense = this.#expected.get(id) === 'rejected';
    const {action, run} = isNonsense ? {} : JSON.parse(String(after.message));
    const isOfStreams = action === 'retry' || action === 'cancel';
    this.#violations.check(
      !/^outdated/.test(String(after.reason)) || (action !== 'stop' && action !== 'cancel'),
      () => `control message ${id} is final, and is outdated: ${after.message}`,
    );
    this.#violations.check(
      !/^there is no run/.test(String(after.reason)) || isOfStreams || !this.#hasOldStream(run),
      () => `control message ${id} names a run with streams: ${after.reason}`,
    );
    this.#context.see(`people say: ${isNonsense ? 'nonsense' : action} (${after.outcome})`);
    this.#violations.check(before === undefined, () => `control message ${id} was done twice`);
  }

  /** Each field has the value of the message published last, whatever is delivered last; a stop applies however late. */
  #onMessage({message, outcome, reason, published_at}: Document): void {
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
      const isSet = JSON.stringify(this.#context.store.peek(path)?.[field]) === JSON.stringify(due);
      // A run may have ended, and money may have paused it, since the later message.
      this.#violations.check(
        isSet || (field === 'status' && !(isLater && outcome === 'applied')),
        () => `${path} has another ${field} than ${JSON.stringify(due)}, which was said last`,
      );
      this.#violations.check(
        isLater || outcome !== 'applied' || Object.keys(said).length > 1,
        () => `${message} of ${published_at} was applied over a message of ${last?.published_at}`,
      );
      if (!isLater) this.#context.see('people say: an older word after a later one');
    }
  }

  /** A message was handled to its end. */
  onHandled(_id: string, {action, run, stream, worker}: Document): void {
    const {store} = this.#context;
    const path = paths.stream(String(run), String(stream));
    const isCancelled = /^cancelled/.test(String(store.peek(path)?.last_error));
    if (action === 'cancel' && isCancelled) this.#cancelled.add(path);
    const deleted = paths.worker(String(worker));
    if (action === 'delete' && store.peek(deleted)?.held) this.#held.add(deleted);
    if (action === 'stop' && store.peek(paths.run(String(run)))?.status === 'cancelled')
      this.#final.add(String(run));
  }

  /** A new document keeps the effect of earlier messages. A run that had a shard waits for an operator. */
  onCreated(path: string, after: Document): void {
    this.#violations.check(
      after.status !== 'active' || !path.startsWith('runs/') || !this.#hasOldShard(String(after.run)),
      () => `${path} was made again, and goes on by itself`,
    );
    this.#violations.check(
      !this.#held.has(path) || after.held === true,
      () => `${path} was deleted, and is ${after.phase} again`,
    );
    this.#violations.check(
      !this.#cancelled.has(path) || after.status === 'failed' || after.status === 'completed',
      () => `${path} was cancelled, and is ${after.status}`,
    );
  }

  /** True if the run had a stream before a message to it was handled. */
  #hasOldStream(run: string): boolean {
    const {clockwork, objects, faults} = this.#context;
    const since = clockwork.now - (faults.hang > 0 ? MOST_LATE_MINUTES : 3) * 60_000;
    return objects.list(streamPrefix(run)).some(({created_at}) => Date.parse(created_at) < since);
  }

  /** Whether a run had a shard before the calls began that have led here. */
  #hasOldShard(run: string): boolean {
    const {clockwork, objects} = this.#context;
    const since = clockwork.now - MOST_LATE_MINUTES * 60_000;
    const outputs = objects.list(outputsPrefix(run));
    return outputs.some(({name, created_at}) => /shard_/.test(name) && Date.parse(created_at) < since);
  }

  onRun(run: string, before: Document | undefined, {status}: Document): void {
    const isFinal = before?.status === 'cancelled' || this.#final.has(run);
    this.#violations.check(
      !isFinal || status === 'cancelled',
      () => `run ${run} was stopped for good, and is ${status}`,
    );
    const isAwoken = before?.status === 'paused' && status === 'active';
    this.#violations.check(
      !isAwoken || this.#violations.isForOperator,
      () => `run ${run} was paused, and no message resumed it`,
    );
  }

  onStream(path: string, before: Document, after: Document): void {
    if (after.status !== 'failed') this.#cancelled.delete(path);
    const isRevived = before.status === 'failed' && after.status === 'pending';
    const isSaid = this.#violations.isForOperator || before.generation !== after.generation;
    this.#violations.check(
      !isRevived || isSaid,
      () => `${path} was parked, and is tried again without a message`,
    );
  }

  onWorker(name: string, before: Document, after: Document): void {
    if (!after.held) this.#held.delete(paths.worker(name));
    this.#violations.check(
      !isNewIncarnation(before, after) || !before.held,
      () => `${name} was deleted, and is made again`,
    );
  }

  /** A lost Store loses the messages. */
  onWipe(): void {
    this.#expected = new Map();
    for (const said of [this.#last, this.#final, this.#cancelled, this.#held]) said.clear();
  }

  atTheEnd(): void {
    const {store} = this.#context;
    for (const run of this.#context.runs()) {
      const isCancelled = store.peek(paths.run(run))?.status === 'cancelled';
      this.#violations.check(
        !isCancelled || this.#stopped.has(run),
        () => `run ${run} is cancelled without a stop`,
      );
    }
    for (const [id, outcome] of this.#expected) {
      const record = store.peek(paths.control(id));
      this.#violations.check(record !== undefined, () => `control message ${id} left no record`);
      this.#violations.check(
        outcome === undefined || record?.outcome === outcome,
        () => `control message ${id} was ${record?.outcome}: ${record?.message}`,
      );
    }
  }
}
