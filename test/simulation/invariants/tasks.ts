/** Checks that tasks end and record their result, and that they read the bucket only where a document is missing. */
import {datasetPrefix, paths} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_SKEW_MS} from '../conditions/faults.ts';
import {type Actor, Check} from './violations.ts';

/** The greatest age of a task that is open at the end of the world. */
const RECENT_MS = 10 * 60_000;

/** Results of a rebuild: refused, done for one run, done for every run. */
const REBUILT =
  /^refused: |^rebuilt (?<run>\S+): (?<streams>\d+) streams? |^\d+ runs have a rebuild task each: /;

export class Tasks extends Check {
  /** By task: the delivery that has claimed it. */
  readonly #claims = new Map<string, Actor>();

  onTask(path: string, before: Document | undefined, task: Document): void {
    this.#checkClaim(path, before, task);
    if (task.created_at !== before?.created_at) this.#checkNeed(path, task);
    if (task.status !== 'done' || before?.status === 'done') return;
    this.context.see(`a task is done: ${task.task}`);
    if (typeof task.result !== 'string') this.breach(`${path} is done, and has no result`);
    if (task.task === 'rebuild') this.#checkRebuilt(path, task);
  }

  /** Until its time is over, only the delivery that claimed a task works on it. A message may open the task again. */
  #checkClaim(path: string, before: Document | undefined, task: Document): void {
    const {actor} = this.violations;
    const isClaimed = Date.parse(String(before?.busy_until_at)) > this.context.clockwork.now + MAX_SKEW_MS;
    const isSame = task.created_at === before?.created_at;
    if (isSame && isClaimed && this.#claims.has(path) && this.#claims.get(path) !== actor)
      this.breach(`two deliveries work on ${path}, which one has claimed until ${before?.busy_until_at}`);
    if (task.busy_until_at === null) this.#claims.delete(path);
    else this.#claims.set(path, actor);
  }

  /** A rebuild reads every stream that was in the bucket at its start, and no stream twice. */
  #checkRebuilt(path: string, {result, created_at}: Document): void {
    const found = REBUILT.exec(String(result));
    if (found === null) this.breach(`${path} is done with an unknown result: ${result}`);
    const {run, streams} = found?.groups ?? {};
    if (run === undefined) return;
    const objects = this.#streamsOf(run);
    const old = objects.filter(object => object.created_at < String(created_at));
    if (!(old.length <= Number(streams)) || !(Number(streams) <= objects.length))
      this.breach(`${path} is done, and ${objects.length} streams are in the bucket: ${result}`);
  }

  #streamsOf(run: string) {
    return this.context.objects.list(datasetPrefix(run)).filter(({name}) => name.endsWith('.jsonl'));
  }

  /** A resync registers the streams of a run only where a stream has no document, or got one during the resync. */
  #checkNeed(path: string, {task, run}: Document): void {
    const {actor} = this.violations;
    const isByResync = actor !== undefined && 'task' in actor && actor.task === 'resync';
    if (task !== 'register' || !isByResync || !this.context.isSettled()) return;
    const {clockwork, store} = this.context;
    const since = clockwork.now - RECENT_MS;
    const isNeeded = this.#streamsOf(String(run)).some(({name, created_at}) => {
      const stream = store.peek(paths.stream(String(run), name.slice(-9, -6)));
      return !stream || Math.max(Date.parse(created_at), Date.parse(String(stream.created_at))) > since;
    });
    if (!isNeeded) this.breach(`${path} was opened, and every stream has a document`);
  }

  override atTheEnd(): void {
    const {clockwork, store} = this.context;
    for (const {path, data} of store.collection('tasks'))
      if (data.status !== 'done' && !(clockwork.now - Date.parse(String(data.created_at)) < RECENT_MS))
        this.breach(`${path} is open at the end, since ${data.created_at}: ${data.result}`);
  }
}
