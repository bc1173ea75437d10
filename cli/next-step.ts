/** The next step of a person for each constraint. */
import type {Constraint, ConstraintKind} from '../shared/domain/waiting/constraint.ts';

/** Null: the wait ends by itself. */
const STEPS: Record<ConstraintKind, ((about: string) => string) | null> = {
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
        ? `gleaner tpus create ${about.slice(5)} --budget-usd N`
        : 'raise max_budget_usd and deploy, or wait for the next month',
  'no-slot': about => `gleaner tpus create ${about} --workers-per-zone 2`,
  'behind-jobs': () => 'wait, or add TPUs: gleaner scale --workers-per-zone N',
  'behind-run': () => 'wait, raise the priority: gleaner run configure RUN --priority 5, or add TPUs',
  'pool-paused': about => `gleaner pool resume ${about.replace('pool ', '')}`,
  'failed-boots': () => 'gleaner logs TPU has the boot: mend its cause, then: gleaner pool resume POOL',
  ceiling: () => 'raise max_workers and deploy, or wait for other TPUs to go',
  permission: () => 'grant the role that the error names, then: gleaner pool resume POOL',
  'no-such-type': () => 'use a zone that offers the type: gleaner doctor, gleaner scale --zones',
  quota: () => 'ask Google for the quota that the error names, or add zones: gleaner scale --zones',
  'no-capacity': () => 'wait, or add zones: gleaner scale --zones',
  'no-node': () => 'wait, or add zones: gleaner scale --zones',
  unreachable: () => 'wait, or add zones: gleaner scale --zones',
  'cool-down': () => 'wait, or add zones: gleaner scale --zones',
  orphans: () => 'gleaner rebuild, or wait until the nodes are deleted',
  'slot-blocked': () => 'remove what the error names',
  deleted: about => `gleaner tpus recreate ${about}`,
  brake: () => 'look at worker-api and the network of the TPUs; gleaner tpus delete ends the cost',
  silent: null,
  model: () => 'mend the network, or start another run with a model that exists',
  maintenance: null,
  leaving: null,
  queue: null,
  create: null,
  boot: null,
  idle: null,
  turn: null,
};

export function nextStep({kind, about}: Pick<Constraint, 'kind' | 'about'>): string {
  return STEPS[kind]?.(about) ?? 'nothing: it ends by itself';
}
