/** Constraints: why a run, a stream, a job or a slot waits, and what a person can do. The plan that withholds a create or a lease names the constraint. */
import type {z} from 'zod';
import {count, describing, instant, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

/** What a person asks about: the run, stream, job or TPU that waits, and its pool. */
type Asked = {work: string; pool: string};

type Kind = {
  /** The headline. `about`: the zone, TPU, run or document that binds. */
  head: (about: string) => string;
  /** What a person can do. Null: nothing, because the wait ends by itself. */
  step: ((about: string, asked: Asked) => string) | null;
  /** True if the work moves: other work of the run is done, or a TPU is about to take it. */
  moves?: true;
};

const addTpus = (pool: string) => `gleaner scale ${pool} --workers-per-zone N`;
const addZones = (pool: string) => `gleaner scale ${pool} --zones ZONES`;
/** The second word of `run my-run` or `pool tpu`. */
const nameIn = (about: string) => about.split(' ').at(-1) ?? about;

/** All kinds, in the order of dominance: the first that applies is the one that binds. */
const KINDS = {
  failed: {
    head: about => `${about} has failed`,
    step: about => {
      const [name = ''] = nameIn(about).split('/');
      if (about.startsWith('job ')) return `repair the cause, then: gleaner jobs retry ${name}`;
      return about.startsWith('each sample ')
        ? `start another run with other options: gleaner run start RUN --from ${name}`
        : `repair the cause, then: gleaner run retry ${name}`;
    },
  },
  'no-spec': {
    head: about => `run ${about} has no spec`,
    step: about => `upload datasets/${about}/run.json or a stream`,
  },
  paused: {
    head: about => `run ${about} is paused`,
    step: about => `act on the reason, then: gleaner run resume ${about}`,
  },
  'not-read': {
    head: about => `the last tick could not read ${about}`,
    step: about => `read the log of on-tick: it names the error of ${about}`,
  },
  unreadable: {
    head: about => `${about} is invalid, and nothing changes until a person mends it`,
    step: about => `mend ${about}: \`gleaner status\` names its invalid field`,
  },
  budget: {
    head: about => `the budget of ${about} pays for no further TPU`,
    step: about =>
      about.startsWith('run ')
        ? `gleaner run configure ${nameIn(about)} --budget-usd N`
        : about.startsWith('pool ')
          ? `gleaner scale ${nameIn(about)} --budget-usd N`
          : 'raise max_budget_usd and deploy, or wait for the next month',
  },
  'several-hosts': {
    head: about => `pool ${about} has TPUs of several hosts`,
    step: () =>
      'create a pool of the type that is named, and start the run in it: gleaner run start RUN --pool POOL',
  },
  'no-slot': {
    head: about => `pool ${about} has no slot`,
    step: about => `gleaner scale ${about} --workers-per-zone 2`,
  },
  behind: {
    head: about => `${about} goes first`,
    step: (about, {work, pool}) =>
      about.startsWith('run ')
        ? `wait, or add TPUs: ${addTpus(pool)}, or raise the priority: gleaner run configure ${work.split('/')[0]} --priority N`
        : `wait, or add TPUs: ${addTpus(pool)}`,
  },
  'pool-paused': {
    head: about => `a person paused ${about}`,
    step: about => `gleaner pool resume ${nameIn(about)}`,
  },
  'failed-boots': {
    head: about => `creates of ${about} are stopped`,
    step: (_, {pool}) =>
      `\`gleaner logs TPU\` has the boot: mend its cause, then: gleaner pool resume ${pool}`,
  },
  ceiling: {
    head: about => `the deployment allows ${about}`,
    step: (about, {pool}) =>
      about.startsWith('no zone of pool ')
        ? `${addZones(pool)}, or raise allowed_zones and deploy`
        : 'raise max_workers and deploy, or wait until other TPUs are gone',
  },
  permission: {
    head: about => `a permission is missing in ${about}`,
    step: (_, {pool}) => `grant the role that the error names, then: gleaner pool resume ${pool}`,
  },
  'no-such-type': {
    head: about => `${about} refuses the type or the runtime version`,
    step: (_, {pool}) => `\`gleaner doctor\` shows what zones offer, then: ${addZones(pool)}`,
  },
  quota: {
    head: about => `the quota in ${about} is used up`,
    step: (_, {pool}) => `ask Google for the quota that the error names, or add zones: ${addZones(pool)}`,
  },
  zone: {
    head: about => `${about} gives no TPU now`,
    step: (_, {pool}) => `wait, or add zones: ${addZones(pool)}`,
  },
  orphans: {
    head: about => `${about} has nodes without documents`,
    step: () => 'wait until the nodes are deleted, or: gleaner rebuild',
  },
  'slot-blocked': {
    head: about => `${about} cannot be created now`,
    step: () => 'remove what the error names',
  },
  deleted: {
    head: about => `a person deleted ${about}`,
    step: about => `gleaner tpus recreate ${about}`,
  },
  'silence-guard': {
    head: about => `${about} has silent TPUs that are kept for now`,
    step: () => 'look at worker-api and the network of the TPUs; `gleaner tpus delete TPU` ends the cost',
  },
  model: {
    head: about => `${about} waits for its model`,
    step: () => 'mend the network, or start another run with a model that exists',
  },
  away: {head: about => `${about} cannot work now`, step: null},
  coming: {head: about => `${about} is on its way`, step: null},
  idle: {head: about => `${about} is ready and about to ask for work`, step: null, moves: true},
  slices: {
    head: about => `${about} waits for several TPUs in one zone`,
    step: (_, {pool}) => `wait, or add TPUs: ${addTpus(pool)}`,
  },
  'pool-full': {
    head: about => `every TPU of pool ${about} is at work`,
    step: (_, {pool}) => `wait, or add TPUs: ${addTpus(pool)}`,
    moves: true,
  },
} satisfies Record<string, Kind>;

export type ConstraintKind = keyof typeof KINDS;
export const CONSTRAINT_KINDS = Object.keys(KINDS) as ConstraintKind[];

/**
 * A constraint in a document. `refusals`: refused requests since `since_at`. The first tick
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

/** A later release stores kinds that this release does not know. */
const kindOf = ({kind}: Pick<Constraint, 'kind'>): Kind | undefined =>
  CONSTRAINT_KINDS.includes(kind) ? KINDS[kind] : undefined;

export const isMoving = (waits: Constraint) => kindOf(waits)?.moves === true;

/** Null: the wait ends by itself. */
export function nextStep(waits: Pick<Constraint, 'kind' | 'about'>, asked: Asked): string | null {
  return kindOf(waits)?.step?.(waits.about, asked) ?? null;
}

/** `us-central1-a gives no TPU now (since 12:46): Failed to create …; refused 41 times, next try 12:51`. */
export function waitText(waits: Constraint): string {
  const {refusals, next_try_at} = waits;
  const times = refusals > 1 ? [`refused ${refusals} times`] : [];
  const next = next_try_at === null ? [] : [`next try ${minuteText(next_try_at)}`];
  return [shortText(waits), [...times, ...next].join(', ')].filter(part => part !== '').join('; ');
}

/** The words of `waitText` that no further try changes. */
export function shortText(waits: Omit<Constraint, 'refusals' | 'next_try_at'>): string {
  const {kind, about, evidence, since_at} = waits;
  const head = kindOf(waits)?.head(about) ?? `${about} waits (${kind})`;
  const since = since_at === null ? '' : ` (since ${minuteText(since_at)})`;
  return `${head}${since}${evidence === null ? '' : `: ${evidence}`}`;
}

/** `12:46`, in UTC. */
export const minuteText = (instant: string) => iso(msOf(instant)).slice(11, 16);
