/** Observations of a slot in Cloud TPU, and the worker document after each of them. */

import {readySince, type Symptom, type Worker} from '../records/worker.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import {isUp, nodeStanding, type Queued, queueStanding, type Shown} from './provider-states.ts';

/**
 * Answer of Cloud TPU for the name of a slot.
 * `unknown`: the zone did not answer, which proves nothing.
 * `missing`: a node that was listed before is absent from the complete list of `listed_at`, which may be wrong.
 * `absent`: `get` found no node, or no node was ever listed.
 * `foreign`: a node without our label, which we must not delete. A request of ours may wait behind it in the queue.
 */
export type Observation = {kind: 'unknown'} | Missing | {kind: 'absent'} | ForeignNode | FoundNode;

export type Missing = {kind: 'missing'; listed_at: string};

export type ForeignNode = {kind: 'foreign'; isQueued: boolean};

/** A node, a queued resource, or both. `state`, `health`, `symptoms`: of the node, else null and HEALTH_UNSPECIFIED. `created_at`: of either. */
export type FoundNode = {
  kind: 'found';
  state: string | null;
  health: string;
  symptoms: Symptom[];
  queued: Queued | null;
  /** Incarnations in the labels of both: normally only one. */
  incarnations: number[];
  created_at: string;
};

/** Seconds between two updates of the time at which a node was not READY yet. */
const UNREADY_S = 120;
const MOST_SYMPTOMS = 5;

/** Costs of a new bill, because the ended incarnation has been billed. */
export const UNBILLED = {costs: {}, costs_at: null, priced_from_at: null, ready_at: null};

/** Records the observation in the worker before any decision. A node that is up costs money, even one that must be deleted. */
export function afterLook(before: Worker, observation: Observation, now: number): Worker {
  if (observation.kind === 'missing' && before.missing_since_at === null)
    return {...before, missing_since_at: observation.listed_at};
  if (observation.kind !== 'found') return before;
  const seen = withProvider(before, observation, now);
  const worker = before.phase === 'gone' ? {...seen, ...UNBILLED} : seen;
  if (worker.ready_at !== null) return worker;
  if (!isUp(observation.state)) {
    const isNews = worker.unready_at === null || isOlderThan(worker.unready_at, UNREADY_S, now);
    return isNews && nodeStanding(worker) === 'coming' ? {...worker, unready_at: iso(now)} : worker;
  }
  // A node that is being deleted existed before this phase began, unless it belongs to another incarnation.
  const isOwn = before.phase === 'deleting' && otherIncarnation(before, observation) === undefined;
  const {provider_since_at, unready_at, phase_since_at} = before;
  const bounds = [observation.created_at, provider_since_at, unready_at, isOwn ? null : phase_since_at];
  return {...worker, ready_at: readySince(bounds, now)};
}

function withProvider(worker: Worker, observation: FoundNode, now: number): Worker {
  const shown = {
    provider_state: observation.state,
    health: observation.state === null ? null : observation.health,
    queue_state: observation.queued?.state ?? null,
  };
  const symptoms = symptomsSince(worker.ready_at, observation.symptoms);
  const isNews =
    shown.provider_state !== worker.provider_state ||
    shown.health !== worker.health ||
    shown.queue_state !== worker.queue_state ||
    symptoms.length !== worker.symptoms.length ||
    worker.missing_since_at !== null ||
    newSymptoms(worker, {symptoms}).length > 0;
  if (!isNews) return worker;
  const isSame = worker.provider_since_at !== null && standing(shown) === standing(worker);
  const provider_since_at = isSame ? worker.provider_since_at : iso(now);
  return {...worker, ...shown, symptoms, provider_since_at, missing_since_at: null};
}

const standing = (shown: Shown) => `${nodeStanding(shown)}, ${queueStanding(shown)}`;

/** The newest symptoms since the node was READY; earlier ones belong to its creation. */
function symptomsSince(ready_at: string | null, symptoms: readonly Symptom[]): Symptom[] {
  if (ready_at === null) return [];
  const since = symptoms.filter(({created_at}) => msOf(created_at) >= msOf(ready_at));
  return since.sort((a, b) => msOf(a.created_at) - msOf(b.created_at)).slice(-MOST_SYMPTOMS);
}

export function newSymptoms(before: Worker, {symptoms}: Pick<Worker, 'symptoms'>): Symptom[] {
  const isKnown = ({symptom, created_at}: Symptom) =>
    before.symptoms.some(known => known.symptom === symptom && known.created_at === created_at);
  return symptoms.filter(symptom => !isKnown(symptom));
}

export function otherIncarnation(worker: Worker, observation: Observation): number | undefined {
  if (observation.kind !== 'found') return undefined;
  return observation.incarnations.find(incarnation => incarnation !== worker.incarnation);
}
