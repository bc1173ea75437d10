/** In some worlds a run that has ended grows old: the documents of its streams expire, and people go on with the run. */
import {openTask} from '../../shared/control-plane/documents/tasks.ts';
import {paths, streamId, streamObject} from '../../shared/domain/names.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Chance} from '../world/clock.ts';
import {someLines} from '../world/shard-plan.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';
import {isEnded} from './invariants/retention.ts';

/** Days after its end at which a run is made old: beyond the default of `GLEANER_STREAMS_DAYS`. */
const OLD_DAYS = 91;
/** A stream that no world drops before. */
const LATE_STREAM = streamId(50);

export class OldRuns {
  readonly #context: Context;
  readonly #delivery: Delivery;
  readonly #chance: Chance | undefined;
  #aged_ms = Number.NEGATIVE_INFINITY;

  constructor(context: Context, delivery: Delivery) {
    this.#context = context;
    this.#delivery = delivery;
    this.#chance = context.drawsOf('old runs');
  }

  /** True if a resync has looked at the runs that are old. */
  get isSettled(): boolean {
    return this.#context.clockwork.now - this.#aged_ms > this.#context.config.audit_s * 1000 + 4 * 60_000;
  }

  onRun(run: string, before: Document | undefined, after: Document): void {
    const {context, chance} = {context: this.#context, chance: this.#chance};
    const hasEnded = before?.status !== after.status && isEnded(after);
    if (!chance || !hasEnded || context.aged.has(run) || !chance.happens(0.6)) return;
    context.after(chance.between(1, 6) * 60_000, () => void this.#age(run, chance));
  }

  /** The run ended long ago, and the first tick of a day deletes the documents of old runs. */
  async #age(run: string, chance: Chance): Promise<void> {
    const context = this.#context;
    const {aged, clockwork, store} = context;
    if (aged.has(run) || !isEnded(store.peek(paths.run(run)) ?? {})) return;
    const {now} = clockwork;
    context.note(() => `${run} is old`);
    await context.edit(async tx => {
      const found = await tx.get(paths.run(run));
      if (!found || !isEnded(found)) return;
      aged.add(run);
      context.touched.delete(run);
      this.#aged_ms = now;
      await openTask(tx, {task: 'expire', run: null}, now);
      tx.set(paths.run(run), {...found, updated_at: iso(now - OLD_DAYS * 86_400_000)});
    });
    if (chance.happens(0.8)) context.after(chance.between(1, 9) * 60_000, () => this.#goOn(run, chance));
  }

  #goOn(run: string, chance: Chance): void {
    const name = streamObject(run, LATE_STREAM);
    // A stop is final: nothing but a rebuild or a stream concerns a stopped run.
    const isStopped = this.#context.store.peek(paths.run(run))?.status === 'stopped';
    const actions = isStopped ? ['drop', 'rebuild'] : ['drop', 'rebuild', 'start', 'retry'];
    const [action, lines] = [chance.pick(actions), chance.integer(1, 4)];
    if (action === 'drop') this.#context.drop(name, someLines(lines, `${run} goes on`));
    else this.#delivery.command({action, run});
  }
}
