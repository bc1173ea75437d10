/** Constraints: why a run, a stream, a job or a slot waits. The plan that withholds a create or a lease names the constraint. */
import type {z} from 'zod';
import {count, describing, instant, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

type Row = {
  /** Head of the sentence; `about` is the subject of the constraint. */
  head: (about: string) => string;
  /** Next step of a person. Null: the wait ends by itself. */
  next: ((about: string) => string) | null;
};

const itself = null;

/** Every kind of constraint. Kinds of slots without a node are in the order of dominance: the first that applies is the binding one. */
const ROWS = {
  failed: {
    head: about => `${about} has failed`,
    next: about =>
      about.startsWith('job ')
        ? `repair the cause, then: gleaner jobs retry ${about.slice(4)}`
        : `repair the cause, then: gleaner run retry ${about.replace(/^(run|stream) /, '').split('/')[0]}`,
  },
  'no-spec': {
    head: about => `run ${about} has no spec`,
    next: about => `upload datasets/${about}/run.json or a stream`,
  },
  paused: {
    head: about => `run ${about} is paused`,
    next: about => `act on the reason, then: gleaner run resume ${about}`,
  },
  'not-read': {
    head: about => `the tick cannot read ${about}`,
    next: about => `read the log of on-tick: it names the error of ${about}`,
  },
  unreadable: {
    head: about => `${about} is left alone`,
    next: about => `mend ${about}: \`gleaner status\` names its invalid field`,
  },
  budget: {
    head: about => `the budget of ${about} pays for no further TPU`,
    next: about =>
      about.startsWith('run ')
        ? `gleaner run configure ${about.slice(4)} --budget-usd N`
        : about.startsWith('pool ')
          ? `gleaner tpus create ${about.slice(5)} --budget-usd N`
          : 'raise max_budget_usd and deploy, or wait for the next month',
  },
  'no-slot': {
    head: about => `pool ${about} has no slot`,
    next: about => `gleaner tpus create ${about} --workers-per-zone 2`,
  },
  'behind-jobs': {
    head: about => `jobs of pool ${about} go first`,
    next: () => 'wait, or add TPUs: gleaner scale --workers-per-zone N',
  },
  'behind-run': {
    head: about => `run ${about} goes first`,
    next: () => 'wait, raise the priority: gleaner run configure RUN --priority 5, or add TPUs',
  },
  'pool-paused': {
    head: about => `a person paused ${about}`,
    next: about => `gleaner pool resume ${about.replace('pool ', '')}`,
  },
  'failed-boots': {
    head: about => `creates of ${about} are stopped`,
    next: () => 'gleaner logs TPU has the boot: mend its cause, then: gleaner pool resume POOL',
  },
  ceiling: {
    head: about => `the deployment allows ${about}`,
    next: () => 'raise max_workers and deploy, or wait for other TPUs to go',
  },
  permission: {
    head: about => `a permission is missing in ${about}`,
    next: () => 'grant the role that the error names, then: gleaner pool resume POOL',
  },
  'no-such-type': {
    head: about => `${about} refuses the type or the runtime version`,
    next: () => 'use a zone that offers the type: gleaner doctor, gleaner scale --zones',
  },
  quota: {
    head: about => `the quota in ${about} is used up`,
    next: () => 'ask Google for the quota that the error names, or add zones: gleaner scale --zones',
  },
  'no-capacity': {
    head: about => `${about} has no capacity`,
    next: () => 'wait, or add zones: gleaner scale --zones',
  },
  'no-node': {
    head: about => `${about} accepts creates and makes no node`,
    next: () => 'wait, or add zones: gleaner scale --zones',
  },
  unreachable: {
    head: about => `Cloud TPU does not answer for ${about}`,
    next: () => 'wait, or add zones: gleaner scale --zones',
  },
  'cool-down': {
    head: about => `${about} takes its TPUs back young and cools down`,
    next: () => 'wait, or add zones: gleaner scale --zones',
  },
  orphans: {
    head: about => `${about} has nodes without documents`,
    next: () => 'gleaner rebuild, or wait until the nodes are deleted',
  },
  'slot-blocked': {
    head: about => `${about} cannot be created now`,
    next: () => 'remove what the error names',
  },
  deleted: {
    head: about => `a person deleted ${about}`,
    next: about => `gleaner tpus recreate ${about}`,
  },
  brake: {
    head: about => `${about} holds silent TPUs`,
    next: () => 'look at worker-api and the network of the TPUs; gleaner tpus delete ends the cost',
  },
  silent: {head: about => `${about} is silent`, next: itself},
  model: {
    head: about => `${about} waits for its model`,
    next: () => 'mend the network, or start another run with a model that exists',
  },
  maintenance: {head: about => `Google repairs the host of ${about}`, next: itself},
  leaving: {head: about => `${about} is leaving its slot`, next: itself},
  queue: {head: about => `${about} waits in the queue of its zone`, next: itself},
  create: {head: about => `${about} is being created`, next: itself},
  boot: {head: about => `${about} boots`, next: itself},
  idle: {head: about => `${about} is about to ask for work`, next: itself},
  turn: {head: about => `every TPU of pool ${about} is at work`, next: itself},
} satisfies Record<string, Row>;

export type ConstraintKind = keyof typeof ROWS;
export const CONSTRAINT_KINDS = Object.keys(ROWS) as ConstraintKind[];

/**
 * `about`: the zone, TPU, run or document that binds. `since_at`: null where only the tick that finds the constraint is known.
 * `refusals`: refused requests since then.
 * A document has the time.
 */
export const waiting = stored({
  kind: describing(CONSTRAINT_KINDS),
  about: text,
  evidence: text.nullable(),
  since_at: instant,
  refusals: count.default(0),
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
  const since_at = now_is.since_at ?? (isSame ? before.since_at : iso(now));
  const next: Waiting = {...now_is, since_at};
  return isSame && CHANGING.every(field => before[field] === next[field]) ? before : next;
}

/** True for a constraint of work that moves: other work of the run is done, or a TPU comes. */
export function isMoving({kind}: Constraint): boolean {
  return kind === 'turn' || kind === 'idle';
}

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
  return `${ROWS[kind].head(about)}${since}${evidence === null ? '' : `: ${evidence}`}`;
}

/** `12:46`, in UTC. */
export function minuteText(instant: string): string {
  return iso(msOf(instant)).slice(11, 16);
}

/** The next step of a person. */
export function nextStep({kind, about}: Pick<Constraint, 'kind' | 'about'>): string {
  return ROWS[kind].next?.(about) ?? 'nothing: it ends by itself';
}
