/** The next step of a person for each constraint. */
import type {Constraint, ConstraintKind} from '../../shared/domain/records/constraint.ts';

/** Null: the wait ends by itself. `work`: the run, the stream or the TPU that waits. */
const STEPS: Record<ConstraintKind, ((about: string, work: string) => string) | null> = {
  failed: about =>
    about.startsWith('job ')
      ? `repair the cause, then: gleaner jobs retry ${about.slice(4)}`
      : `repair the cause, then: gleaner run retry ${about.replace(/^(run|stream) /, '').split('/')[0]}`,
  'no-spec': about => `upload datasets/${about}/run.json or a stream`,
  paused: about => `act on the reason, then: gleaner run resume ${about}`,
  'not-read': about => `read the log of on-tick: it names the error of ${about}`,
  unreadable: about => `mend ${about}: \`gleaner status\` names its invalid field`,
  budget: about =>
    about.startsWith('run ')
      ? `gleaner run configure ${about.slice(4)} --budget-usd N`
      : about.startsWith('pool ')
        ? `gleaner scale ${about.slice(5)} --budget-usd N`
        : 'raise max_budget_usd and deploy, or wait for the next month',
  'several-hosts': () =>
    'create a pool of the type that is named, and start the run in it: gleaner run start RUN --pool POOL',
  'no-slot': about => `gleaner scale ${about} --workers-per-zone 2`,
  'behind-jobs': () => 'wait, or add TPUs: gleaner scale --workers-per-zone N',
  'behind-run': (_, work) =>
    `wait, add TPUs, or raise the priority: gleaner run configure ${work.split('/')[0]} --priority N`,
  'pool-paused': about => `gleaner pool resume ${about.replace('pool ', '')}`,
  'failed-boots': () => '`gleaner logs TPU` has the boot: mend its cause, then: gleaner pool resume POOL',
  ceiling: about =>
    about.startsWith('no zone of pool ')
      ? `gleaner scale ${about.slice(16)} --zones ZONES, or raise allowed_zones and deploy`
      : 'raise max_workers and deploy, or wait for other TPUs to go',
  permission: () => 'grant the role that the error names, then: gleaner pool resume POOL',
  'no-such-type': () => '`gleaner doctor` checks the offers of zones, then: gleaner scale --zones ZONES',
  quota: () => 'ask Google for the quota that the error names, or add zones: gleaner scale --zones ZONES',
  'no-capacity': () => 'wait, or add zones: gleaner scale --zones ZONES',
  'no-node': () => 'wait, or add zones: gleaner scale --zones ZONES',
  unreachable: () => 'wait, or add zones: gleaner scale --zones ZONES',
  'cool-down': () => 'wait, or add zones: gleaner scale --zones ZONES',
  orphans: () => 'wait until the nodes are deleted, or: gleaner rebuild',
  'slot-blocked': () => 'remove what the error names',
  deleted: about => `gleaner tpus recreate ${about}`,
  'silence-guard': () =>
    'look at worker-api and the network of the TPUs; `gleaner tpus delete TPU` ends the cost',
  silent: null,
  model: () => 'mend the network, or start another run with a model that exists',
  maintenance: null,
  leaving: null,
  queue: null,
  create: null,
  boot: null,
  idle: null,
  slices: () => 'wait, or add TPUs: gleaner scale --workers-per-zone N',
  turn: null,
};

export function nextStep({kind, about}: Pick<Constraint, 'kind' | 'about'>, work: string): string | null {
  return STEPS[kind]?.(about, work) ?? null;
}
