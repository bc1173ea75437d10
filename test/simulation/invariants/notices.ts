/** Checks that people are told of each end and each pause of a run, and not more often than it came. */

import type {Run} from '../../../shared/domain/records/run.ts';
import {isFurtherMiss} from '../../../shared/domain/run/model-failures.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_SKEW_MS} from '../conditions/faults.ts';
import {Check} from './violations.ts';

type Body = {type: string; timestamp: string; data: Record<string, unknown>};

const TOLD = ['completed', 'failed', 'paused'];

export class Notices extends Check {
  /** By type and run: the changes, the ids that were accepted, and the times of the last of each. */
  readonly #changes = new Map<string, number>();
  readonly #ids = new Map<string, Set<string>>();
  readonly #changed_ms = new Map<string, number>();
  readonly #told_ms = new Map<string, number>();

  onRun(run: string, before: Document | undefined, after: Document): void {
    const status = String(after.status);
    if (status === before?.status || !TOLD.includes(status) || isFurtherMiss(after as Run)) return;
    const key = `run.${status} ${run}`;
    this.#changes.set(key, (this.#changes.get(key) ?? 0) + 1);
    this.#changed_ms.set(key, this.context.clockwork.now);
  }

  /** A notification is given up after a day, and no world lasts so long. */
  onNotice(path: string, {outcome, error}: Document): void {
    if (outcome === 'failed') this.breach(`${path} is lost: ${error}`);
  }

  onAccepted(id: string, {type, timestamp, data}: Body): void {
    this.context.see(`a notification is accepted: ${type}`);
    const key = `${type} ${data.run ?? data.pool ?? data.zone ?? data.month} ${data.percent ?? ''}`.trim();
    const ids = this.#ids.get(key) ?? new Set();
    const hasCome = ids.has(id);
    if (hasCome) this.context.see('a notification is accepted twice');
    this.#ids.set(key, ids.add(id));
    this.#told_ms.set(key, Math.max(this.#told_ms.get(key) ?? 0, Date.parse(timestamp)));
    const {storm} = this.context;
    const isAnswerLost = [storm.silence, storm.crash, storm.aim, storm.hang, storm.refusal].some(Boolean);
    const isStoreLost = [storm.store_outage, storm.permission, storm.latency_ms].some(Boolean);
    if (hasCome && !isAnswerLost && !isStoreLost && !this.context.options.crashes)
      this.breach(`notification ${id} (${key}) was sent twice without a fault`);
    const changes = this.#changes.get(key);
    if (TOLD.includes(type.slice('run.'.length)) && !(ids.size <= (changes ?? 0)))
      this.breach(`${ids.size} notifications tell ${key}, which came ${changes ?? 0} times`);
  }

  override onWipe(): void {
    this.#changed_ms.clear();
  }

  override atTheEnd(): void {
    if (!this.context.receiver) return;
    for (const {id, data} of this.context.store.collection('runs')) {
      const key = `run.${data.status} ${id}`;
      const changed_ms = this.#changed_ms.get(key);
      if (changed_ms === undefined) continue;
      const told_ms = this.#told_ms.get(key) ?? 0;
      if (!(told_ms >= changed_ms - MAX_SKEW_MS))
        this.breach(`${key}: no notification tells its last change`);
    }
  }
}
