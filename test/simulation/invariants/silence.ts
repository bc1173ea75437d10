/** Checks the ends of silent workers. An outage ends none, and few end in a zone before a new worker sends a heartbeat. */

import {slotsOf} from '../../../shared/domain/fleet/slots.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import type {Suspect} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {UP} from '../../world/tpu-lists.ts';
import {MAX_SKEW_MS} from '../conditions/faults.ts';
import {streamPathOf} from './leases.ts';
import {Check} from './violations.ts';
import {ALIVE, keyOf} from './zones.ts';

/** The limits of the silence guard, repeated here. A zone in these worlds has at most seven nodes, so its share is one node. */
const NEXT_END_MS = 600_000;
const PROOF_MS = 150_000;
const BAD_VERDICTS = 2;
const SILENT_FOR_GOOD_MS = 6 * 3_600_000;

type Episode = {ended_at: number; bad_verdicts: number};

/** The last word of the host that has been silent for longest. */
export function wordOf({heartbeat_at, hosts, host_count, phase_since_at}: Document): string {
  const words = Array.from({length: Number(host_count ?? 1)}, (_, host) =>
    host === 0 ? heartbeat_at : (hosts as Record<string, Document>)[host]?.heartbeat_at,
  );
  return String(words.map(at => at ?? phase_since_at).sort()[0]);
}

export class Silence extends Check {
  readonly #outages: {from: number; to: number}[] = [];
  /** By pool and zone: the last end of a silent worker since the last first heartbeat of a worker. */
  readonly #episodes = new Map<string, Episode>();
  /** By pool and zone: the time of the last first heartbeat of a worker. */
  readonly #first_heartbeat_at = new Map<string, number>();

  /** By worker: the stream that it lost by its silence, until its next heartbeat. */
  readonly #lost = new Map<string, string>();

  onOutage(isOut: boolean): void {
    const {now} = this.context.clockwork;
    const last = this.#outages.at(-1);
    const isOngoing = last !== undefined && last.to > now;
    if (isOngoing && !isOut) last.to = now;
    if (isOut && !isOngoing) this.#outages.push({from: now, to: Number.POSITIVE_INFINITY});
  }

  onWorker(name: string, before: Document, after: Document): void {
    const zone = keyOf(after.pool, after.zone);
    if (after.hello_at !== null && before.hello_at === null) {
      this.#episodes.delete(zone);
      this.#first_heartbeat_at.set(zone, this.context.clockwork.now);
    }
    if (after.heartbeat_at !== before.heartbeat_at) this.#lost.delete(name);
    const suspect = after.suspect as Suspect | null;
    if (before.work !== null && after.work === null) {
      if (suspect) this.#lost.set(name, suspect.work);
      this.#checkSuspect(name, before, after);
    }
    if (after.phase !== 'deleting' || before.phase === 'deleting') return;
    const cause = after.last_death === before.last_death ? '' : String(after.last_death);
    const episode = this.#episodes.get(zone);
    if (/READY but said nothing/.test(cause) && episode) episode.bad_verdicts += 1;
    if (/^it vanished from Cloud TPU/.test(cause))
      this.#checkSilence(name, before, this.context.config.lease_s);
    // A symptom that no host can work with is a cause of its own.
    if (!/^(it|host \d+) has said nothing for/.test(cause) || /MESH_BUILD_FAIL/.test(cause)) return;
    this.#checkSilence(name, before, this.context.config.limits.silent_s);
    // A boot that never reached its agent is held by no silence guard.
    if (/in its boot/.test(cause)) {
      if (before.agent_at !== null)
        this.breach(`${name} ended in its boot, and its agent has spoken: ${cause}`);
      return;
    }
    this.#checkShare(name, zone, before);
    this.#checkCharge(before);
  }

  /** The silence of a worker leaves out the time in which worker-api did not answer. */
  #checkSilence(name: string, before: Document, limit_s: number): void {
    const {clockwork, storm} = this.context;
    const {now} = clockwork;
    const since = Date.parse(wordOf(before));
    // The control plane cannot see an outage that is shorter than the interval between two proofs of service.
    const seen = this.#outages.filter(({from, to}) => Math.min(now, to) - from > PROOF_MS);
    // A slow heartbeat that was received before the outage is stored during the outage, and is a proof too.
    const late_ms = storm.latency_ms > 0 || storm.hang > 0 ? PROOF_MS : 0;
    const lost = seen.map(({from, to}) => Math.max(0, Math.min(now, to) - Math.max(since, from + late_ms)));
    const silent_ms = now - since - lost.reduce((sum, ms) => sum + ms, 0);
    if (!(silent_ms > limit_s * 1000 - 2 * MAX_SKEW_MS))
      this.breach(`${name} ended after only ${silent_ms} ms of silence while worker-api answered`);
  }

  #checkShare(name: string, zone: string, before: Document): void {
    const {now} = this.context.clockwork;
    const last = this.#episodes.get(zone);
    const since = Date.parse(wordOf(before));
    // A new worker sent a heartbeat, so every worker that was silent at that time ends.
    const silent_ms = (this.#first_heartbeat_at.get(zone) ?? 0) - since;
    if (silent_ms > this.context.config.limits.silent_s * 1000 - 2 * MAX_SKEW_MS) return;
    const mayEnd =
      last === undefined ||
      now - last.ended_at > NEXT_END_MS - 2 * MAX_SKEW_MS ||
      last.bad_verdicts >= BAD_VERDICTS ||
      this.#isCrowded(before) ||
      now - since > SILENT_FOR_GOOD_MS - 2 * MAX_SKEW_MS;
    if (!mayEnd)
      this.breach(
        `${name} ended for its silence ${now - (last?.ended_at ?? 0)} ms after another worker of ${zone}`,
      );
    this.#episodes.set(zone, {ended_at: now, bad_verdicts: last?.bad_verdicts ?? 0});
  }

  /** True if no slot of the worker's zone can take a canary: each has a worker that has spoken, or stays empty. */
  #isCrowded({name, pool, zone}: Document): boolean {
    const {config, store} = this.context;
    const slots = slotsOf((store.peek(paths.pool(String(pool))) as Pool | undefined) ?? config.pool);
    return slots
      .filter(slot => slot.zone === zone && slot.name !== name)
      .every(slot => {
        const worker = store.peek(paths.worker(slot.name));
        return worker?.held || (ALIVE.includes(String(worker?.phase)) && worker?.hello_at !== null);
      });
  }

  /** A healthy worker that loses its lease by its silence becomes a suspect. Its document keeps the lost stream. */
  #checkSuspect(name: string, before: Document, after: Document): void {
    if (before.claimed_at === null || after.phase !== before.phase) return;
    const [heartbeat_at, claimed_at] = [String(before.heartbeat_at), String(before.claimed_at)];
    const {clockwork, config} = this.context;
    const claimed_ms = clockwork.now - Date.parse(claimed_at) + MAX_SKEW_MS;
    const isSilent = heartbeat_at <= claimed_at && claimed_ms > config.lease_s * 1000;
    const hasSymptoms = (before.symptoms as unknown[]).length > 0;
    const isHealthy =
      !hasSymptoms && UP.includes(String(before.provider_state)) && before.health !== 'UNHEALTHY_MAINTENANCE';
    if (!isSilent || !isHealthy) return;
    const work = String(before.work);
    this.context.after(0, () => {
      const stream = this.#streamOf(work);
      const isWanted = this.context.store.peek(`runs/${work.split('/')[0]}`)?.status === 'active';
      const isLost = isWanted && stream?.status === 'pending' && stream.lease === null;
      const isSuspect = (after.suspect as Suspect | null)?.work === work;
      const events = this.context.store.collection('events');
      const isReleased = events.some(({data}) => String(data.text).startsWith(`${name} gave ${work} back`));
      if (isLost && !isSuspect && !isReleased)
        this.breach(`${name} became silent at work on ${work}, and is no suspect`);
    });
  }

  /** A stream is charged with the end of the silent worker that lost it, unless a shard was stored since. */
  #checkCharge(before: Document): void {
    const suspect = before.suspect as Suspect | null;
    const stream = suspect && this.#streamOf(suspect.work);
    if (!suspect || !stream || stream.status === 'completed' || stream.status === 'failed') return;
    if (Number(stream.total_shards) > suspect.total_shards) return;
    const lost = this.#lost.get(String(before.name));
    if (lost !== suspect.work)
      this.breach(`${before.name} lost ${suspect.work} before its last heartbeat, and is a suspect for it`);
    this.context.after(0, () => {
      const after = this.#streamOf(suspect.work);
      const isCharged = Number(after?.faults) > Number(stream.faults) || after?.status === 'completed';
      if (!isCharged) this.breach(`stream ${suspect.work} lost its silent worker, and no fault is counted`);
    });
  }

  #streamOf(work: string): Document | undefined {
    return this.context.store.peek(streamPathOf(work));
  }

  override onWipe(): void {
    this.#episodes.clear();
  }
}
