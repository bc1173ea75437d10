/** Checks that messages of operators apply once and in order, and that final messages stay final until the Store is lost. */
import {isDeepStrictEqual} from 'node:util';
import {outputsPrefix, paths, stopObject, streamPrefix} from '../../../shared/domain/names.ts';
import type {Limiter} from '../../../shared/domain/records/limiter.ts';
import {poolSettings} from '../../../shared/domain/records/pool-settings.ts';
import {runChanges} from '../../../shared/domain/records/spec-keys.ts';
import {iso} from '../../../shared/domain/time.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import {isNewIncarnation} from './nodes.ts';
import {Check} from './violations.ts';

/** Fields that a message without settings sets. A `start` of a run that has ended sets nothing. */
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
  clear: {},
};

/** Fields that messages set, of a pool and of a run. */
const SETTINGS = [
  ...['zones', ...Object.keys(poolSettings), 'keep', 'version'],
  ...['source', 'environment', 'source_version', 'message_times'],
];
const SETTINGS_OF_RUN = [...Object.keys(runChanges), 'version', 'pool', 'spec_hash'];

/** A pool keeps TPUs until some minutes after the publish time of the message, however late it arrives. */
function keepOf({minutes, workers = 1}: Record<string, number>, published_at: string): object | null {
  if (minutes === 0) return null;
  return {workers, until_at: iso(Date.parse(published_at) + Number(minutes) * 60_000)};
}

export class OperatorIntent extends Check {
  /** Control messages that need a record at the end, with the outcome of those that must be rejected. */
  #expected = new Map<string, 'rejected' | undefined>();
  /** Runs with a published stop, handled or not. */
  readonly #stopped = new Set<string>();
  /** Runs that were stopped, streams that were cancelled, and workers that an operator deleted. */
  readonly #final = new Set<string>();
  readonly #cancelled = new Set<string>();
  readonly #held = new Set<string>();
  /** By document and field: the publish time and the value of the last message that set it. A person has replaced an edited value. */
  readonly #last = new Map<string, {published_at: string; value: unknown; isEdited?: true}>();

  onStop(run: string): void {
    this.#stopped.add(run);
  }

  expectRecord(message_id: string, outcome?: 'rejected'): void {
    this.#expected.set(message_id, outcome);
  }

  onControl(id: string, before: Document | undefined, after: Document): void {
    this.#onMessage(after);
    const isInvalid = this.#expected.get(id) === 'rejected';
    const {action, run} = isInvalid ? {} : JSON.parse(String(after.message));
    const isOfStreams = action === 'retry' || action === 'cancel';
    // A message that was sent before the Store was lost may be lost with it.
    const isLost = !this.#expected.has(id);
    if (/^outdated/.test(String(after.reason)) && (action === 'stop' || action === 'cancel'))
      this.breach(`control message ${id} is final, and was dropped as outdated: ${after.message}`);
    if (/^there is no run/.test(String(after.reason)) && !isOfStreams && !isLost && this.#hasOldStream(run))
      this.breach(`control message ${id} was rejected, and its run has streams: ${after.reason}`);
    this.context.see(`an operator sends: ${isInvalid ? 'an invalid message' : action} (${after.outcome})`);
    if (before !== undefined) this.breach(`control message ${id} was applied twice`);
  }

  /** Each field has the value of the message published last, in any order of delivery. A stop always applies. */
  #onMessage({message, outcome, reason, published_at}: Document): void {
    const isProcessed = outcome === 'applied' || /^outdated/.test(String(reason));
    if (!isProcessed || typeof published_at !== 'string') return;
    const {
      action,
      run,
      worker,
      stream,
      job,
      if_version: _,
      pool = this.context.config.pool.pool,
      ...settings
    } = JSON.parse(String(message));
    // The month of a correction is in no document that has messages.
    if (action === 'correct') return;
    if (job !== undefined) this.#onJob(job, action, published_at, outcome === 'applied');
    if (job !== undefined) return;
    const path = worker ? paths.worker(worker) : run ? paths.run(run) : paths.pool(pool);
    const isOfCreates = path.startsWith('pools/') && (action === 'pause' || action === 'resume');
    const own =
      action === 'keep'
        ? {keep: keepOf(settings, published_at)}
        : isOfCreates
          ? {creates: action}
          : FIELD_OF[action];
    const fields =
      action === 'update' ? this.#updateOf(path, settings) : (own ?? (stream === undefined ? settings : {}));
    for (const [field, value] of Object.entries(fields)) {
      const last = this.#last.get(`${path} ${field}`);
      const isLater = !last || published_at >= last.published_at;
      if (isLater) this.#last.set(`${path} ${field}`, {published_at, value});
      const expected = isLater ? value : last.value;
      const isEdited = !isLater && last.isEdited === true;
      const isSet = isEdited || JSON.stringify(this.#valueOf(path, field)) === JSON.stringify(expected);
      // After the later message, the run may have ended, or its budget may have paused it.
      if (!isSet && (field !== 'status' || (isLater && outcome === 'applied')))
        this.breach(
          `${path} has another ${field} than ${JSON.stringify(expected)}, which the last message set`,
        );
      if (!isLater && outcome === 'applied' && Object.keys(fields).length <= 1)
        this.breach(`${message} of ${published_at} was applied over a message of ${last?.published_at}`);
      if (!isLater) this.context.see('an operator sends: an older message after a later one');
    }
  }

  /** An older retry changes nothing after a later message about the job. The invariants of jobs check the rest. */
  #onJob(job: string, action: string, published_at: string, isApplied: boolean): void {
    const path = `${paths.job(this.context.config.jobs_collection, job)} status`;
    const last = this.#last.get(path);
    const isOlder = last !== undefined && published_at < last.published_at;
    if (isApplied && isOlder && action === 'retry')
      this.breach(`a retry of ${job} of ${published_at} was applied after ${JSON.stringify(last)}`);
    if (isApplied && !isOlder) this.#last.set(path, {published_at, value: action});
  }

  /** The fields that an update sets. Without any, it sets the source as it is: the hosts read it again. */
  #updateOf(path: string, {source, environment = {}}: {source?: unknown; environment?: object}) {
    const isEmpty = source === undefined && Object.keys(environment).length === 0;
    const given = isEmpty ? this.#valueOf(path, 'source') : source;
    const own = Object.entries(environment).map(([field, value]) => [`environment.${field}`, value]);
    return {...(given === undefined ? {} : {source: given}), ...Object.fromEntries(own)};
  }

  /** The value of a field. A message pauses and resumes the creates of a pool. */
  #valueOf(path: string, field: string): unknown {
    const found = this.context.store.peek(path);
    const [, part] = field.split('.');
    if (part) return (found?.environment as Document | undefined)?.[part];
    if (field !== 'creates') return found?.[field];
    return (found?.limiter as Limiter | undefined)?.cause === 'person' ? 'pause' : 'resume';
  }

  /** Notes the final messages whose handler has ended. */
  onHandled(_id: string, {action, run, stream, worker}: Document): void {
    const {store} = this.context;
    const path = paths.stream(String(run), String(stream));
    const isCancelled = /^cancelled/.test(String(store.peek(path)?.last_error));
    if (action === 'cancel' && isCancelled) this.#cancelled.add(path);
    const deleted = paths.worker(String(worker));
    if (action === 'delete' && store.peek(deleted)?.held) this.#held.add(deleted);
    if (action !== 'stop' || store.peek(paths.run(String(run)))?.status !== 'stopped') return;
    this.#final.add(String(run));
    if (!this.context.objects.info(stopObject(String(run))))
      this.breach(`run ${run} was stopped, and the bucket does not have the stop`);
  }

  /** A document that is created again keeps the effect of earlier messages. A run that has a shard waits for an operator. */
  onCreated(path: string, after: Document): void {
    if (after.status === 'active' && path.startsWith('runs/') && this.#hasOldShard(String(after.run)))
      this.breach(`${path} was created again, and is active without a message`);
    if (this.#held.has(path) && after.held !== true)
      this.breach(`${path} was deleted, and is ${after.phase} again`);
    if (this.#cancelled.has(path) && after.status !== 'failed' && after.status !== 'completed')
      this.breach(`${path} was cancelled, and is ${after.status}`);
  }

  /** True if the run had a stream before the handler of the message started. */
  #hasOldStream(run: string): boolean {
    const {clockwork, objects, faults} = this.context;
    const since = clockwork.now - (faults.hang > 0 ? MAX_HANG_MINUTES : 3) * 60_000;
    return objects.list(streamPrefix(run)).some(({created_at}) => Date.parse(created_at) < since);
  }

  /** True if the run had a shard before the oldest call that can end now. */
  #hasOldShard(run: string): boolean {
    const {clockwork, objects, storm} = this.context;
    const since = clockwork.now - (storm.hang > 0 ? MAX_HANG_MINUTES : 3) * 60_000;
    const outputs = objects.list(outputsPrefix(run));
    return outputs.some(({name, created_at}) => /shard_/.test(name) && Date.parse(created_at) < since);
  }

  onRun(run: string, before: Document | undefined, {status}: Document): void {
    const isFinal = before?.status === 'stopped' || this.#final.has(run);
    if (isFinal && status !== 'stopped') this.breach(`run ${run} was stopped, and is ${status}`);
    const isResumed = before?.status === 'paused' && status === 'active';
    const isTry = isResumed && this.#isModelTry(run, before);
    if (isTry) this.context.see('a run tries its model again by itself');
    if (isResumed && !isTry && !this.violations.isForOperator)
      this.breach(`run ${run} was paused, and no message resumed it`);
  }

  /** True if the time of the next try has come, and the last message did not pause the run. */
  #isModelTry(run: string, {model_next_at}: Document): boolean {
    const last = this.#last.get(`${paths.run(run)} status`);
    const latest = this.context.clockwork.now + MAX_SKEW_MS;
    const isDue = typeof model_next_at === 'string' && Date.parse(model_next_at) <= latest;
    return isDue && last?.value !== 'paused';
  }

  /** Only a message or an edit changes what people set. */
  onSettings(path: string, before: Document, after: Document): void {
    if (this.violations.actor === undefined || this.violations.isBy('control')) return;
    // The first spec of a run comes with its settings.
    if (before.spec === null) return;
    const fields = path.startsWith('pools/') ? SETTINGS : SETTINGS_OF_RUN;
    const changed = fields.find(field => !isDeepStrictEqual(before[field], after[field]));
    if (changed !== undefined)
      this.breach(
        `${path} has another ${changed} without a message: ${JSON.stringify([before[changed], after[changed]])}`,
      );
  }

  onStream(path: string, before: Document, after: Document): void {
    if (after.status !== 'failed') this.#cancelled.delete(path);
    const isRetried = before.status === 'failed' && after.status === 'pending';
    const isAllowed = this.violations.isForOperator || before.generation !== after.generation;
    if (isRetried && !isAllowed) this.breach(`${path} had failed, and is retried without a message`);
  }

  onWorker(name: string, before: Document, after: Document): void {
    if (!after.held) this.#held.delete(paths.worker(name));
    if (isNewIncarnation(before, after) && before.held)
      this.breach(`${name} was deleted, and is created again`);
  }

  /** The cancellation of a stream expires with its document. */
  onExpired(path: string): void {
    this.#cancelled.delete(path);
  }

  /** An edit of a document replaces what messages set. An older message stays outdated. */
  onEdit(path: string): void {
    for (const [key, last] of this.#last)
      if (key.startsWith(`${path} `)) this.#last.set(key, {...last, isEdited: true});
  }

  /** A lost Store loses the messages. */
  override onWipe(): void {
    this.#expected = new Map();
    for (const effects of [this.#last, this.#cancelled, this.#held]) effects.clear();
  }

  override atTheEnd(): void {
    const {store} = this.context;
    for (const run of this.context.runs()) {
      const isStopped = store.peek(paths.run(run))?.status === 'stopped';
      if (isStopped && !this.#stopped.has(run)) this.breach(`run ${run} is stopped without a stop`);
    }
    for (const [id, outcome] of this.#expected) {
      const record = store.peek(paths.control(id));
      if (record === undefined) this.breach(`control message ${id} left no record`);
      if (outcome !== undefined && record?.outcome !== outcome)
        this.breach(`control message ${id} was ${record?.outcome}: ${record?.message}`);
    }
  }
}
