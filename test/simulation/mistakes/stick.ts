/** Mistakes after which a run, a stream, a job, a slot, a zone, a task or a tick never goes on. */
import type {Mistakes} from '../planting/anchors.ts';

export const STICK: Mistakes = {
  'a stream that is dropped again and leaves its run ended by its model': {
    shown_by: 'overwrites',
    in: 'decideRegistration',
    find: '$RUN.certain_failure === null || $IS_TRIED',
    replace: '$RUN.certain_failure === null',
  },
  'a tick queue that waits for ever after its first wait': {
    shown_by: 'unreliable messages',
    in: 'TickQueue',
    within: '{$$$WAIT; if (this.$BEGUN > $BEFORE && !this.$IS_FLAGGED) return true; $$$RUN}',
    find: 'this.$IS_WAITING = false;',
    replace: 'this.$IS_WAITING = this.$BEGUN > $BEFORE;',
  },
  'a tick that has ended and still counts as running': {
    shown_by: 'unreliable messages',
    in: 'TickQueue',
    within: '{const $NOW = this.$CLOCK.now(); this.$PAUSED_UNTIL_MS = $NOW + $PAUSE; $$$END}',
    find: 'if (this.$RUNNING_SINCE_MS === $BEGAN_MS) this.$RUNNING_SINCE_MS = undefined;',
    replace: 'if (this.$RUNNING_SINCE_MS === $NOW) this.$RUNNING_SINCE_MS = undefined;',
  },
  'a command that wakes no tick': {
    shown_by: 'orders',
    in: 'handleControlMessage',
    find: 'await $WAKE(bus);',
    replace: 'if (row.after) await $WAKE(bus);',
  },
  'a new stream that wakes no tick': {
    shown_by: 'priorities',
    in: 'handleObjectEvent',
    find: 'return $WAKE($DEPS.$BUS);',
    replace: 'return;',
  },
  'a slot that was refused once and stays blocked': {
    shown_by: 'scarce zones',
    in: 'isBlocked',
    find: 'return $WORKER.blocked_until_at !== null && !$IS_OLDER_THAN;',
    replace: 'return $WORKER.blocked_until_at !== null;',
  },
  'a zone that refused a node and is never covered': {
    shown_by: 'scarce zones',
    in: 'isDue',
    find: '$IS_OLDER_THAN($LIMITER.next_at, 0, $NOW)',
    replace: '$LIMITER.next_at === null',
  },
  'a zone that gives nodes and goes on probing': {
    shown_by: 'scarce zones',
    in: 'afterGiven',
    find: '{...$LIMITER, ...$OPEN, refuses_late: false}',
    replace: '$LIMITER',
  },
  'a canary that a zone waits for an hour to repeat': {
    shown_by: 'scarce zones',
    in: 'retryAfter',
    find: 'Math.min($LONGEST, $REFUSED * $SHARE)',
    replace: 'Math.max($LONGEST * 12, $REFUSED * $SHARE)',
  },
  'a recreate flag that is not cleared': {
    shown_by: 'busy operators',
    edits: [
      {
        in: 'toCreating',
        find: 'born_at: $BORN_AT',
        replace: 'recreate: worker.recreate, born_at: $BORN_AT',
      },
      {in: 'decideDeleting', find: 'recreate: false'},
    ],
  },
  'a heartbeat that counts as progress': {
    shown_by: 'bad machines',
    in: 'heardFrom',
    find: '$LIST.some($FIELD => $SAID[$FIELD] !== $WORKER[$FIELD]) ? $ISO($NOW) : $WORKER.progress_at',
    replace: '$ISO($NOW)',
  },
  'a slot that asks for the stream of its neighbour': {
    shown_by: 'wide',
    in: 'streamFor',
    find: '$NUMBER < 0 ? undefined : $NUMBER + $OFFSET',
    replace: '$NUMBER < 0 ? undefined : $NUMBER + 1 + $OFFSET',
  },
  'a run with a low priority that goes first': {
    shown_by: 'priorities',
    in: 'byPreference',
    find: '$B.priority - $A.priority',
    replace: '$A.priority - $B.priority',
  },
  'a changed stream whose run gets no mark': {
    shown_by: 'unreliable messages',
    in: 'withRunMarks',
    find: 'if ($MISSING.size > 0) throw new $UNMARKED();',
  },
  'a count that ends the mark of a change under way': {
    in: 'markAfterCount',
    find: '$IS_OLDER_THAN($CHANGED_AT, $LIMIT_S, $COUNTED_MS)',
    replace: '$IS_OLDER_THAN($CHANGED_AT, -60, $COUNTED_MS)',
  },
  'an overdue job that no tick ends': {
    shown_by: 'many jobs',
    in: 'tick',
    find: "await $FAILURES.$ISOLATE('end due jobs', $WORK);",
  },
  'a plan that forgets the waiting jobs': {
    shown_by: 'many jobs',
    in: 'workOf',
    find: '$IS_PAID ? $WAITING - $GANGS.length + $AT_JOBS : 0',
    replace: '$IS_PAID ? $AT_JOBS : 0',
  },
  'an ended job that asks for no tick': {
    shown_by: 'many jobs',
    in: 'decideFinish',
    within: '{answer, writes: {endedJob: $ENDED, worker: $WORKER, members: $MEMBERS, events}, wakes: true}',
    find: 'wakes: true',
  },
  'a job that no count of machines fails': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: 'machine_failures < MAX_MACHINE_FAILURES',
    replace: 'machine_failures > 0',
  },
  'a waiting job of a second pool that no plan counts': {
    shown_by: 'orders',
    in: 'budgetSnapshotOf',
    find: '$HAS_DOCUMENT ? $JOBS.get($POOL.pool) : {waiting: 0}',
    replace: '$HAS_DOCUMENT && $POOL === pools[0] ? $JOBS.get($POOL.pool) : {waiting: 0}',
  },
  'a kept TPU that goes with the last work': {
    shown_by: 'keeping',
    in: 'workOf',
    find: '{payer: $PAYER, open: $KEPT, bound: [], waiting: 0, own: undefined}',
    replace: '{payer: $PAYER, open: $KEPT > 1 ? $KEPT : 0, bound: [], waiting: 0, own: undefined}',
  },
  'a heartbeat after which the worker keeps the stream that a job waits for': {
    shown_by: 'short deadlines',
    in: 'workAfter',
    find: '$SAYS_IT_HAS($WORKER, $LEASE) ? $WORKER.yields_to : null',
    replace: 'null',
  },
  'a run behind another run that has no reason': {
    shown_by: 'priorities',
    in: 'whyWaiting',
    find: 'if ($SHARE.ahead) return $BEHIND($SHARE.ahead.payer, $FLEET);',
    replace: 'if ($SHARE.ahead) return undefined;',
  },
  'a hub that is never tried again': {
    shown_by: 'silent hub',
    in: 'planBudgets',
    find: 'retries: $RETRIES',
    replace: 'retries: []',
  },
  'a constraint that no later one replaces': {
    shown_by: 'unreliable messages',
    in: 'goesOn',
    find: '$IS_SAME && $FIELDS.every($MATCH) ? $BEFORE : $NEXT',
    replace: '$BEFORE ?? $NEXT',
  },
  'jobs that wait without a reason': {
    shown_by: 'many jobs',
    in: 'withWaits',
    find: '$GOES_ON($POOL.jobs_wait, $WORK.get($JOBS), $NOW)',
    replace: '$POOL.jobs_wait',
  },
  'refusals of one zone that are many events': {
    shown_by: 'scarce zones',
    in: 'recordRefusal',
    find: '$FOLD($WORKER.pool, $WORKER.zone, $LIMITER)',
    replace: 'undefined',
  },
  'a slow tick that forgets the pools that it left out': {
    shown_by: 'slow ticks',
    in: 'recordLate',
    find: '{...$CREATES, late_pools: $LATE}',
    replace: '{...$CREATES, late_pools: []}',
  },
  'failed boots that no agent clears': {
    shown_by: 'many jobs',
    in: 'afterAgent',
    find: '$FAILED !== null && $AGENT > $FAILED ? $CLEARED : $LIMITER',
    replace: '$LIMITER',
  },
  'a paused pool that is no reason': {
    shown_by: 'orders',
    in: 'limiterConstraint',
    find: "return $CONSTRAINT('pool-paused', $ABOUT, null, $TIMES);",
    replace: 'return undefined;',
  },
  'a pool without slots that is no reason': {
    shown_by: 'scarce orders',
    in: 'whyWaiting',
    find: "if ($POOL.workers_per_zone === 0) return $CONSTRAINT('no-slot', $POOL.pool);",
  },
  'an instance that runs and counts as lost': {
    shown_by: 'instances',
    in: 'NODE_STANDINGS',
    find: "RUNNING: 'up'",
    replace: "RUNNING: 'over'",
  },
  'a job without a holder that no tick ends': {
    shown_by: 'left alone',
    in: 'tick',
    find: "await $FAILURES.$ISOLATE('end the jobs that no worker holds', $WORK);",
  },
  'an ended run that waits': {
    shown_by: 'busy operators',
    in: 'endedAs',
    find: 'waits: null',
  },
  'a leaving TPU that is named idle': {
    in: 'tpuConstraint',
    find: "if ($HAS_ENDED($WORKER) || $PHASE === 'draining') return $LEAVING;",
  },
};
