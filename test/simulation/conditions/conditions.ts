/** Named conditions of a world: each has some parts and faults for certain, and the seed draws everything else. */
import type {FaultTerms} from './faults.ts';
import type {PartName} from './parts.ts';

export type Condition = FaultTerms & {parts: readonly PartName[]};

export const CONDITIONS = {
  storm: {parts: ['many jobs', 'keeping'], share: 0.5},
  'many jobs': {parts: ['many jobs', 'orders'], share: 0.15, faults: ['preemption', 'machine_fault']},
  'busy operators': {parts: ['busy operators', 'keeping'], share: 0, faults: ['delay_s', 'duplicate']},
  'unreliable messages': {
    parts: ['jobs', 'orders'],
    share: 0,
    faults: ['loss', 'duplicate', 'delay_s', 'crash', 'silence', 'aim', 'refusal'],
  },
  overwrites: {parts: ['broken model'], share: 0, faults: ['overwrite', 'loss', 'delay_s']},
  'late overwrites': {parts: ['jobs'], share: 0.15, faults: ['overwrite', 'delay_s']},
  preemptions: {parts: ['jobs'], share: 0, faults: ['preemption', 'notice', 'vanish', 'deaf', 'storm']},
  'small budgets': {parts: ['small budget', 'jobs'], share: 0, faults: ['preemption']},
  priorities: {parts: ['priorities', 'many jobs'], share: 0},
  'busy jobs': {parts: ['busy operators', 'many jobs'], share: 0},
  'single lines': {parts: ['single lines'], share: 0},
  orders: {parts: ['jobs', 'orders', 'second pool'], share: 0},
  'scarce orders': {parts: ['orders'], share: 0, faults: ['stockout']},
  keeping: {parts: ['keeping', 'jobs'], share: 0},
  'scarce zones': {parts: ['forbidden zone'], share: 0.15, faults: ['stockout', 'quota', 'partition']},
  'slow providers': {parts: [], share: 0.15, faults: ['stuck', 'suspension', 'repair', 'stale', 'omission']},
  'bad machines': {
    parts: ['hung'],
    share: 0,
    faults: ['stillborn', 'bad_host', 'ill', 'machine_fault', 'lie'],
  },
  'cut networks': {
    parts: ['jobs'],
    share: 0,
    faults: ['cut', 'zone_cut', 'outage', 'late', 'zombie', 'preemption'],
  },
  'lost database': {parts: ['lost database', 'tiny pages'], share: 0.3, faults: ['wipe', 'loss', 'stray']},
  'tiny pages': {parts: ['tiny pages'], share: 0},
  'refused pages': {parts: ['tiny pages', 'keeping'], share: 0.3, faults: ['loss', 'refusal']},
  wide: {parts: ['wide', 'priorities'], share: 0.15},
  'slow ticks': {parts: ['slow ticks', 'jobs'], share: 0.15},
  collisions: {parts: ['collisions', 'jobs'], share: 0},
  'short deadlines': {parts: ['short deadlines', 'orders'], share: 0},
  'hurried people': {
    parts: ['hurried people', 'many jobs', 'orders'],
    share: 0,
    faults: ['late', 'zombie', 'preemption'],
  },
  'lost wide': {parts: ['wide'], share: 0, faults: ['preemption', 'vanish', 'deaf', 'storm']},
  'scarce wide': {parts: ['wide'], share: 0, faults: ['stockout', 'quota', 'stuck']},
  forger: {
    parts: ['early forger', 'jobs', 'second pool'],
    share: 0,
    faults: ['forgery', 'stillborn', 'cut', 'late', 'crash'],
  },
  'forged jobs': {
    parts: ['early forger', 'many jobs'],
    share: 0,
    faults: ['forgery', 'stillborn', 'cut', 'late', 'crash'],
  },
  'run budgets': {parts: ['run budgets'], share: 0, faults: ['preemption']},
  'shared month': {parts: ['shared month', 'jobs'], share: 0.15},
  'broken model': {parts: ['broken model', 'silent hub'], share: 0.15},
  'silent hub': {parts: ['silent hub'], share: 0},
  'dearer TPUs': {parts: ['dearer TPUs', 'many jobs'], share: 0.15},
  instances: {parts: ['instances'], share: 0.15},
  receiver: {parts: ['receiver', 'jobs'], share: 0.3},
  'old runs': {parts: ['old runs', 'busy operators'], share: 0},
  'aged runs': {parts: ['old runs'], share: 0.15},
  slices: {
    parts: ['slices', 'many jobs'],
    share: 0,
    faults: ['cut', 'zone_cut', 'outage', 'late', 'zombie'],
  },
  'commands on slices': {parts: ['slices', 'orders'], share: 0},
  gangs: {parts: ['gangs'], share: 0, faults: ['preemption', 'stockout', 'stuck', 'quota']},
  'left alone': {parts: ['left alone', 'many jobs'], share: 0.15, faults: ['rollout', 'preemption']},
  'short jobs': {parts: ['short deadlines', 'many jobs'], share: 0.15},
  'busy pauses': {
    parts: ['hasty pauses', 'orders', 'busy operators'],
    share: 0,
    faults: ['delay_s', 'stockout'],
  },
  'hasty pauses': {parts: ['hasty pauses', 'orders'], share: 0},
  strays: {parts: ['orders'], share: 0, faults: ['stray', 'foreign']},
} satisfies Record<string, Condition>;

export type ConditionName = keyof typeof CONDITIONS;
