/** Constraints: why a run, a stream, a job or a slot waits, and what a person can do. The plan that withholds a create or a lease names the constraint. */
import type {z} from 'zod';
import {count, describing, instant, orNull, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

const ADD_TPUS = 'wait, or add TPUs: gleaner scale {pool} --workers-per-zone N';
const ADD_ZONES = 'gleaner scale {pool} --zones ZONES';

/**
 * `head`: the headline. `step`: what a person can do, or null if the wait ends by itself. A record has one step for each first word of
 * `about`. `moves`: other work of the run is being done, or a TPU is about to start.
 * `{about}`: the zone, TPU, run or document that is the cause. `{name}`: its last word, such as `my-run` of `run my-run`. `{run}` and
 * `{pool}`: those of the work that a person asks about.
 */
type Kind = {head: string; step: string | Record<string, string> | null; moves?: true};

/** All kinds in order of precedence: if several apply, the first one is shown. */
const KINDS = {
  failed: {
    head: '{about} has failed',
    step: {
      run: 'repair the cause, then: gleaner run retry {name}',
      stream: 'repair the cause, then: gleaner run retry {run}',
      job: 'repair the cause, then: gleaner jobs retry {name}',
      each: 'start another run with other options: gleaner run start RUN --from {name}',
    },
  },
  'no-spec': {
    head: 'run {about} has no spec',
    step: 'upload a valid datasets/{about}/run.json: the run begins by itself',
  },
  paused: {head: 'run {about} is paused', step: 'gleaner run resume {about}'},
  'not-read': {
    head: 'the last tick could not read {about}',
    step: 'read the log of on-tick: it names the error of {about}',
  },
  unreadable: {
    head: '{about} is invalid, and nothing changes until a person mends it',
    step: 'mend {about}: `gleaner status` names its invalid field',
  },
  budget: {
    head: 'the budget of {about} pays for no further TPU',
    step: {
      run: 'gleaner run configure {name} --budget-usd N',
      pool: 'gleaner scale {name} --budget-usd N',
      the: 'raise max_budget_usd and deploy, or wait for the next month',
    },
  },
  'several-hosts': {
    head: 'pool {about} has TPUs of several hosts',
    step: 'create a pool of the type that is named, and start the run in it: gleaner run start RUN --pool POOL',
  },
  'no-slot': {head: 'pool {about} has no slot', step: 'gleaner scale {about} --workers-per-zone 2'},
  behind: {
    head: '{about} goes first',
    step: {
      run: `${ADD_TPUS}, or raise the priority: gleaner run configure {run} --priority N`,
      jobs: ADD_TPUS,
    },
  },
  'pool-paused': {head: 'a person paused {about}', step: 'gleaner pool resume {name}'},
  'failed-boots': {
    head: 'creates of {about} are stopped',
    step: '`gleaner logs TPU` has the boot: mend its cause, then: gleaner pool resume {pool}',
  },
  ceiling: {
    head: 'the deployment allows {about}',
    step: {
      no: `${ADD_ZONES}, or raise allowed_zones and deploy`,
      only: 'raise max_workers and deploy, or wait until other TPUs are gone',
    },
  },
  permission: {
    head: 'a permission is missing in {about}',
    step: 'grant the role that the error names, then: gleaner pool resume {pool}',
  },
  policy: {
    head: 'a policy of the organization forbids TPUs in {about}',
    step: 'ask the administrator of the organization, then: gleaner pool resume {pool}',
  },
  'unknown-answer': {
    head: '{about} refuses with an answer that is not known',
    step: 'mend what the answer names, then: gleaner pool resume {pool}',
  },
  'no-such-type': {
    head: '{about} refuses the type or the runtime version',
    step: `\`gleaner doctor\` shows what zones offer, then: ${ADD_ZONES}`,
  },
  quota: {
    head: 'the quota in {about} is used up',
    step: `ask Google for the quota that the error names, or add zones: ${ADD_ZONES}`,
  },
  rate: {head: '{about} may ask Google for no more TPUs this minute', step: null},
  zone: {head: '{about} gives no TPU now', step: `wait, or add zones: ${ADD_ZONES}`},
  orphans: {
    head: '{about} has nodes without documents',
    step: 'wait until the nodes are deleted, or: gleaner rebuild',
  },
  'slot-blocked': {head: '{about} cannot be created now', step: 'remove what the error names'},
  deleted: {head: 'a person deleted {about}', step: 'gleaner tpus recreate {about}'},
  'silence-guard': {
    head: '{about} has silent TPUs that are kept for now',
    step: 'look at worker-api and the network of the TPUs; `gleaner tpus delete TPU` ends the cost',
  },
  model: {
    head: '{about} waits for its model',
    step: 'mend the network, or start another run with a model that exists',
  },
  away: {head: '{about} cannot work now', step: null},
  coming: {head: '{about} is on its way', step: null},
  idle: {head: '{about} is ready and has not asked for work yet', step: null, moves: true},
  slices: {head: '{about} waits for several TPUs in one zone', step: ADD_TPUS},
  'pool-full': {head: 'every TPU of pool {about} is at work', step: ADD_TPUS, moves: true},
} satisfies Record<string, Kind>;

export type ConstraintKind = keyof typeof KINDS;
export const CONSTRAINT_KINDS = Object.keys(KINDS) as ConstraintKind[];

/**
 * A constraint in a document. `refusals`: refused requests since `since_at`. If the beginning of a constraint is unknown, `since_at` is the
 * time of the first tick that finds it.
 */
export const waiting = stored({
  kind: describing(CONSTRAINT_KINDS),
  about: text,
  evidence: orNull(text),
  since_at: instant,
  refusals: count,
  next_try_at: orNull(instant),
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

/** The constraint to show among several: the first by kind, then the first of the list. */
export function dominant(constraints: Iterable<Constraint>): Constraint | undefined {
  const rank = ({kind}: Constraint) => CONSTRAINT_KINDS.indexOf(kind);
  return [...constraints].sort((a, b) => rank(a) - rank(b))[0];
}

const CHANGING = ['evidence', 'since_at', 'refusals', 'next_try_at'] as const;

/** The constraint with its beginning, which is kept while kind and subject stay the same. Returns the same object if nothing changes. */
export function goesOn(before: Waiting | null, now_is: Constraint | undefined, now: number): Waiting | null {
  if (!now_is) return null;
  const isSame = before?.kind === now_is.kind && before.about === now_is.about;
  const begun_at = isSame ? before.since_at : iso(now);
  const next: Waiting = {...(isSame ? before : {}), ...now_is, since_at: now_is.since_at ?? begun_at};
  return isSame && CHANGING.every(field => before[field] === next[field]) ? before : next;
}

/** Undefined for a kind that a later release stored. */
const kindOf = ({kind}: Pick<Constraint, 'kind'>): Kind | undefined =>
  CONSTRAINT_KINDS.includes(kind) ? KINDS[kind] : undefined;

export const isMoving = (waits: Constraint) => kindOf(waits)?.moves === true;

const fill = (text: string, values: Record<string, string>) =>
  text.replace(/\{(\w+)\}/g, (_, key: string) => values[key] ?? '');

/** What a person can do; null: the wait ends by itself. `work`: the run, stream, job or TPU that the person asks about, and its pool. */
export function nextStep(
  waits: Pick<Constraint, 'kind' | 'about'>,
  {work, pool}: {work: string; pool: string},
): string | null {
  const step = kindOf(waits)?.step ?? null;
  const {about} = waits;
  const [first = '', ...words] = about.split(' ');
  const text = typeof step === 'string' ? step : (step?.[first] ?? null);
  const [run = ''] = work.split('/');
  return text && fill(text, {about, name: words.at(-1) ?? about, run, pool});
}

/** `us-central1-a gives no TPU now (since 12:46): Failed to create …; refused 41 times, next try 12:51`. */
export function waitText(waits: Constraint): string {
  const {refusals, next_try_at} = waits;
  const times = refusals > 1 ? [`refused ${refusals} times`] : [];
  const next = next_try_at === null ? [] : [`next try ${minuteText(next_try_at)}`];
  return [shortText(waits), [...times, ...next].join(', ')].filter(part => part !== '').join('; ');
}

/** The part of `waitText` that does not change with each further try. */
export function shortText(waits: Omit<Constraint, 'refusals' | 'next_try_at'>): string {
  const {kind, about, evidence, since_at} = waits;
  const head = fill(kindOf(waits)?.head ?? `{about} waits (${kind})`, {about});
  const since = since_at === null ? '' : ` (since ${minuteText(since_at)})`;
  return `${head}${since}${evidence === null ? '' : `: ${evidence}`}`;
}

/** `12:46`, in UTC. */
export const minuteText = (instant: string) => iso(msOf(instant)).slice(11, 16);
