/** Mistakes in the life of jobs. */
import type {Mistake} from './mistake.ts';

const LIFECYCLE = 'shared/domain/job/lifecycle.ts';
const TICK = 'shared/control-plane/tick/tick.ts';
const FINISH = 'shared/control-plane/worker-api/finish.ts';

export const JOBS: Mistake[] = [
  {
    name: 'a job whose event was lost and that no tick takes up',
    class: 'lose',
    edits: [
      {
        file: TICK,
        find: "  await failures.isolate('take up pending jobs', () => schedulePending(deps));\n",
        replace: '',
      },
    ],
  },
  {
    name: 'a job of a dead worker that never waits again',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/workers/decide-slots.ts',
        find: 'if (turn.job) {',
        replace: 'if (turn.job && now < 0) {',
      },
    ],
  },
  {
    name: 'a job that ends its last machine and fails without an attempt',
    class: 'lose',
    edits: [
      {
        file: LIFECYCLE,
        find: 'attempts: [...job.attempts, attempt].slice(-MOST_ATTEMPTS),',
        replace: 'attempts: job.attempts.length > 3 ? job.attempts : [...job.attempts, attempt],',
      },
    ],
  },
  {
    name: 'a deleted job that is made again',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/jobs/schedule-jobs.ts',
        find: 'const data = await tx.get(path);',
        replace: 'const data = (await tx.get(path)) ?? known;',
      },
    ],
  },
  {
    name: 'a grant of a job that repeats the epoch',
    class: 'double',
    edits: [
      {
        file: LIFECYCLE,
        find: 'const epoch = job.epoch + 1;',
        replace: 'const epoch = Math.max(1, job.epoch);',
      },
    ],
  },
  {
    name: 'an end of a job that is accepted under an earlier epoch',
    class: 'double',
    edits: [
      {
        file: LIFECYCLE,
        find: "job.status === 'running' && isJobOf(job, claim) && job.lease?.epoch === claim.epoch;",
        replace: "job.status === 'running' && isJobOf(job, claim);",
      },
    ],
  },
  {
    name: 'an end of a job that is accepted from a worker that lost it',
    class: 'double',
    edits: [
      {
        file: LIFECYCLE,
        find: 'isJobOf(job, claim) && job.lease?.epoch === claim.epoch;',
        replace: 'job.epoch >= claim.epoch;',
      },
    ],
  },
  {
    name: 'a cancelled job that its worker keeps',
    class: 'leak',
    edits: [
      {
        file: 'shared/control-plane/events/commands/job-commands.ts',
        find: '    if (decision.next.lease === null) clearWork(tx, holder);\n',
        replace: '',
      },
    ],
  },
  {
    name: 'a job that keeps its place while it runs',
    class: 'leak',
    edits: [
      {
        file: LIFECYCLE,
        find: "{status: 'running', queue: null, epoch,",
        replace: "{status: 'running', epoch,",
      },
    ],
  },
  {
    name: 'a job whose time no payer is billed for',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/billing/cost.ts',
        find: 'parseJobWork(work) === undefined ? parseWork(work)?.run : JOBS;',
        replace: 'parseWork(work)?.run;',
      },
    ],
  },
  {
    name: 'an attempt that costs its job nothing',
    class: 'overspend',
    edits: [
      {
        file: LIFECYCLE,
        find: 'spent_usd: job.spent_usd + (cost_usd ?? 0),',
        replace: 'spent_usd: job.spent_usd,',
      },
    ],
  },
  {
    name: 'an overdue job that no tick ends',
    class: 'stick',
    edits: [
      {file: TICK, find: "  await failures.isolate('end due jobs', () => endDueJobs(deps));\n", replace: ''},
    ],
  },
  {
    name: 'a plan that forgets the waiting jobs',
    class: 'stick',
    edits: [
      {
        file: 'shared/domain/fleet/fleet-plan.ts',
        find: 'jobs.waiting + atJobs > 0)',
        replace: 'atJobs > 0)',
      },
    ],
  },
  {
    name: 'an ended job that asks for no tick',
    class: 'stick',
    edits: [
      {
        file: FINISH,
        find: 'if (answer.status === 200) await wake(deps.bus);',
        replace: 'if (answer.status === 409) await wake(deps.bus);',
      },
    ],
  },
  {
    name: 'a job that no count of machines fails',
    class: 'stick',
    edits: [
      {file: LIFECYCLE, find: 'machine_failures < MAX_MACHINE_FAILURES', replace: 'machine_failures > 0'},
    ],
  },
  {
    name: 'a job that is charged for the preemption of its worker',
    class: 'blame',
    edits: [
      {
        file: LIFECYCLE,
        find: '      return scheduleJob(ended, now);',
        replace: '      return scheduleJob({...ended, failures: job.failures + 1}, now);',
      },
    ],
  },
  {
    name: 'a preempted worker that counts as a machine of its job',
    class: 'blame',
    edits: [
      {
        file: LIFECYCLE,
        find: 'return isMachineDeath(death)\n',
        replace: "return isMachineDeath(death) || death.kind === 'taken'\n",
      },
    ],
  },
  {
    name: 'an own failure that costs a job no retry',
    class: 'blame',
    edits: [
      {
        file: LIFECYCLE,
        find: 'const failures = job.failures + 1;',
        replace: 'const failures = job.failures;',
      },
    ],
  },
  {
    name: 'an end of a job whose secret is not compared',
    class: 'forge',
    edits: [
      {
        file: FINISH,
        find: 'if (!speaksFor(known, request)) return',
        replace: 'if (!speaksFor(known, request) && false) return',
      },
    ],
  },
];
