/** Proofs that worker-api works, and the lost workers: see domain/worker/served-time.ts and domain/zone/silence-guard.ts. */

import type {NotUnderstood} from '../../contracts/errors.ts';
import {RELEASE} from '../../contracts/settings/config.ts';
import {outputPrefix, parseWork, shardListingStart} from '../../domain/names.ts';
import {hasEnded, isAlive, type Workers} from '../../domain/records/worker.ts';
import {isOlderThan, iso, msOf} from '../../domain/time.ts';
import {quietestHost} from '../../domain/worker/hosts.ts';
import {
  isServedFor,
  type Moment,
  PROOF_S,
  type Served,
  withPing,
  withProof,
} from '../../domain/worker/served-time.ts';
import {LONGEST_SILENCE_S} from '../../domain/zone/silence-guard.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {servedRecord} from '../documents/documents.ts';

/** Consecutive failed pings that raise an alert while heartbeats arrive. */
const MOST_FAILED_PINGS = 3;

/** Stores a proof that worker-api works, because it has received a ping. The proof has the time of the ping, not of its transaction. */
export async function storePing(deps: Deps): Promise<void> {
  const received_ms = deps.now();
  await deps.store.transaction(async tx => {
    const served = await servedRecord.read(deps.log, tx);
    servedRecord.set(tx, {...withPing(served, received_ms), failed_pings: 0, failing_since_at: null});
  });
}

/** Seconds for which a worker whose document is invalid stops the served time. */
const UNSERVED_S = 3600;

/**
 * True for a living worker whose document another release wrote recently, so its heartbeats may not be stored. The time limit keeps such a
 * document from stopping all proofs of silence for ever.
 */
function isOfAnotherRelease({release, phase, updated_at}: NotUnderstood['document'], now: number): boolean {
  if (typeof release !== 'string' || release === RELEASE || phase === 'gone') return false;
  return Math.abs(now - Date.parse(String(updated_at))) <= UNSERVED_S * 1000;
}

/**
 * Pings worker-api while a worker lives. Returns the served time so far. No time is served while a worker belongs to another release that
 * this one does not understand.
 */
export async function proveService(deps: Deps, workers: Workers): Promise<Served> {
  const living = [...workers.values()].filter(worker => !hasEnded(worker));
  const served = await servedRecord.read(deps.log, deps.store);
  const isMixed = [...deps.slotsLeftAlone.values()].some(document =>
    isOfAnotherRelease(document, deps.now()),
  );
  if (living.length === 0 || isMixed) return served;
  const heartbeats = living.flatMap(({heartbeat_at}) => (heartbeat_at === null ? [] : msOf(heartbeat_at)));
  // After missed ticks, heartbeats prove the served time in between.
  if (served.proven_at === null || isOlderThan(served.proven_at, PROOF_S, deps.now()))
    await storeProofs(deps, heartbeats, 0);
  try {
    await deps.ping();
  } catch (error) {
    const {failed_pings, failing_since_at} = await storeProofs(deps, heartbeats, 1);
    const areHeard = heartbeats.some(heartbeat_ms => heartbeat_ms > msOf(failing_since_at ?? iso(0)));
    const why = `Failed to ping worker-api, ${failed_pings} times in a row: ${(error as Error).message}`;
    const failed = {signal: 'ping-failed'} as const;
    if (failed_pings >= MOST_FAILED_PINGS && areHeard)
      deps.log('ERROR', `${why}. Workers reach it: let on-tick's service account invoke worker-api`, failed);
    else deps.log('WARNING', `${why}. No silence counts until worker-api answers`, failed);
  }
  return servedRecord.read(deps.log, deps.store);
}

async function storeProofs(deps: Deps, proofs: readonly number[], failed: number): Promise<Served> {
  return deps.store.transaction(async tx => {
    const before = await servedRecord.read(deps.log, tx);
    const proven = proofs.toSorted((a, b) => a - b).reduce(withProof, before);
    const failing = {
      failed_pings: proven.failed_pings + failed,
      failing_since_at: proven.failing_since_at ?? iso(deps.now()),
    };
    const served = failed > 0 ? {...proven, ...failing} : proven;
    if (served !== before) servedRecord.set(tx, served);
    return served;
  });
}

/** Returns the workers that have been silent, without a new shard, for longer than any silence guard holds them. */
export async function findLost(
  deps: Deps,
  workers: Workers,
  {now, servedTime}: Moment,
  failures: Failures,
): Promise<Set<string>> {
  const silent = [...workers.values()].filter(
    worker => isAlive(worker) && isServedFor(servedTime, quietestHost(worker).at, LONGEST_SILENCE_S),
  );
  const lost = new Set<string>();
  await forEachConcurrently(silent, async ({name, suspect}) => {
    const work = parseWork(suspect?.work ?? null);
    if (suspect && work) {
      const {run, stream} = work;
      const start = shardListingStart(run, stream, suspect.total_shards + 1);
      const shards = await failures.isolate(`list the shards of silent worker ${name}`, () =>
        deps.objects.list(outputPrefix(run, stream), {start}),
      );
      if (!shards) return;
      const own = shards.filter(({metadata}) => metadata.epoch === String(suspect.epoch));
      if (own.some(({created_at}) => !isOlderThan(created_at, LONGEST_SILENCE_S, now))) return;
    }
    lost.add(name);
  });
  return lost;
}
