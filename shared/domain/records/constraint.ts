/** Constraints: why a run, a stream, a job or a slot waits. The plan that withholds a create or a lease names the constraint. */
import type {z} from 'zod';
import {count, describing, instant, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

/** Heads of the sentences of each kind of constraint; `about` is its subject. Kinds of slots without a node are in the order of dominance: the first that applies is the binding one. */
const HEADS = {
  failed: about => `${about} has failed`,
  'no-spec': about => `run ${about} has no spec`,
  paused: about => `run ${about} is paused`,
  'not-read': about => `the tick cannot read ${about}`,
  unreadable: about => `${about} is left alone`,
  budget: about => `the budget of ${about} pays for no further TPU`,
  'several-hosts': about => `pool ${about} has TPUs of several hosts`,
  'no-slot': about => `pool ${about} has no slot`,
  'behind-jobs': about => `jobs of pool ${about} go first`,
  'behind-run': about => `run ${about} goes first`,
  'pool-paused': about => `a person paused ${about}`,
  'failed-boots': about => `creates of ${about} are stopped`,
  ceiling: about => `the deployment allows ${about}`,
  permission: about => `a permission is missing in ${about}`,
  'no-such-type': about => `${about} refuses the type or the runtime version`,
  quota: about => `the quota in ${about} is used up`,
  'no-capacity': about => `${about} has no capacity`,
  'no-node': about => `${about} accepts creates and makes no node`,
  unreachable: about => `Cloud TPU does not answer for ${about}`,
  'cool-down': about => `${about} takes its TPUs back young and cools down`,
  orphans: about => `${about} has nodes without documents`,
  'slot-blocked': about => `${about} cannot be created now`,
  deleted: about => `a person deleted ${about}`,
  'silence-guard': about => `${about} holds silent TPUs`,
  silent: about => `${about} is silent`,
  model: about => `${about} waits for its model`,
  maintenance: about => `Google repairs the host of ${about}`,
  leaving: about => `${about} is leaving its slot`,
  queue: about => `${about} waits in the queue of its zone`,
  create: about => `${about} is being created`,
  boot: about => `${about} boots`,
  idle: about => `${about} is about to ask for work`,
  slices: about => `${about} waits for slices of one zone`,
  turn: about => `every TPU of pool ${about} is at work`,
} satisfies Record<string, (about: string) => string>;

export type ConstraintKind = keyof typeof HEADS;
export const CONSTRAINT_KINDS = Object.keys(HEADS) as ConstraintKind[];

/**
 * A constraint in a document. `about`: the zone, TPU, run or document that binds. `refusals`: refused requests since `since_at`. The first tick
 * that finds a constraint of unknown begin gives its own time as `since_at`.
 */
export const waiting = stored({
  kind: describing(CONSTRAINT_KINDS),
  about: text,
  evidence: text.nullable(),
  since_at: instant,
  refusals: count,
  next_try_at: instant.nullable(),
});
export type Waiting = z.infer<typeof waiting>;
export type Constraint = Omit<Waiting, 'since_at'> & {since_at: string | null};

export function constraint(
  kind: ConstraintKind,
  about: string,
  evidence: string | null = null,
  {since_at = null, refusals = 0, next_try_at = null}: Partial<Constraint> = {},
): Constraint {
  return {kind, about, evidence, since_at, refusals, next_try_at};
}

/** The constraint that binds among several: the first by kind, and then the first of the list. */
export function dominant(constraints: Iterable<Constraint>): Constraint | undefined {
  const rank = ({kind}: Constraint) => CONSTRAINT_KINDS.indexOf(kind);
  return [...constraints].sort((a, b) => rank(a) - rank(b))[0];
}

const CHANGING = ['evidence', 'since_at', 'refusals', 'next_try_at'] as const;

/** The constraint with the time of its beginning. A constraint of the same kind and subject goes on. Returns the same object if nothing changes. */
export function goesOn(before: Waiting | null, now_is: Constraint | undefined, now: number): Waiting | null {
  if (!now_is) return null;
  const isSame = before?.kind === now_is.kind && before.about === now_is.about;
  const begun_at = isSame ? before.since_at : iso(now);
  const next: Waiting = {...(isSame ? before : {}), ...now_is, since_at: now_is.since_at ?? begun_at};
  return isSame && CHANGING.every(field => before[field] === next[field]) ? before : next;
}

/** True for a constraint of work that moves: other work of the run is done, or a TPU comes. */
export const isMoving = ({kind}: Constraint) => kind === 'turn' || kind === 'idle';

/** `us-central1-a has no capacity since 12:46: Failed to create …; refused 41 times, next try 12:51`. */
export function waitText(waits: Constraint): string {
  const {refusals, next_try_at} = waits;
  const times = refusals > 1 ? [`refused ${refusals} times`] : [];
  const next = next_try_at === null ? [] : [`next try ${minuteText(next_try_at)}`];
  return [shortText(waits), [...times, ...next].join(', ')].filter(part => part !== '').join('; ');
}

/** The words of `waitText` that no further try changes. */
export function shortText({kind, about, evidence, since_at}: Constraint): string {
  const since = since_at === null ? '' : ` since ${minuteText(since_at)}`;
  return `${headOf(kind, about)}${since}${evidence === null ? '' : `: ${evidence}`}`;
}

/** A later release stores kinds that this release has no sentence for. */
function headOf(kind: ConstraintKind, about: string): string {
  return CONSTRAINT_KINDS.includes(kind) ? HEADS[kind](about) : `${about} waits (${kind})`;
}

/** `12:46`, in UTC. */
export const minuteText = (instant: string) => iso(msOf(instant)).slice(11, 16);
