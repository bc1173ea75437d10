/** Mistakes after which a run, a stream, a job, a slot, a zone, a task or a tick never goes on. */
import type {Mistakes} from '../planting/anchors.ts';

export const STICK: Mistakes = {
  'a stream that is dropped again and leaves its run ended by its model': {
    in: 'decideRegistration',
    find: '$run.certain_failure === null || $isTried',
    replace: '$run.certain_failure === null',
  },
  'a tick queue that waits for ever after its first wait': {
    in: 'TickQueue',
    within: '{$$wait; if (this.$begun > $before && !this.$isFlagged) return true; $$run}',
    find: 'this.$isWaiting = false;',
    replace: 'this.$isWaiting = this.$begun > $before;',
  },
  'a tick that has ended and still counts as running': {
    in: 'TickQueue',
    within: '{const $now = this.$clock.now(); this.$paused_until_ms = $now + $pause; $$end}',
    find: 'if (this.$running_since_ms === $began_ms) this.$running_since_ms = undefined;',
    replace: 'if (this.$running_since_ms === $now) this.$running_since_ms = undefined;',
  },
  'a command that wakes no tick': {
    in: 'handleControlMessage',
    within: '{$$before; await $row.after?.($deps, $message); $$after}',
    find: 'await $wake($bus);',
    replace: 'if ($row.after) await $wake($bus);',
  },
  'a new stream that wakes no tick': {
    in: 'handleObjectEvent',
    within: "case 'stream': $$steps",
    find: 'return $wake($deps.$bus);',
    replace: 'return;',
  },
  'a slot that was refused once and stays blocked': {
    in: 'isBlocked',
    find: 'return $worker.blocked_until_at !== null && !$isOlderThan;',
    replace: 'return $worker.blocked_until_at !== null;',
  },
  'a zone that refused a node and is never covered': {
    in: 'isDue',
    find: '$isOlderThan($limiter.next_at, 0, $now)',
    replace: '$limiter.next_at === null',
  },
  'a zone that gives nodes and goes on probing': {
    in: 'afterGiven',
    find: '{...$limiter, ...$open, refuses_late: false}',
    replace: '$limiter',
  },
  'a canary that a zone waits for an hour to repeat': {
    in: 'retryAfter',
    within: 'Math.max($least, Math.min($longest, $refused * $share))',
    find: 'Math.min($longest, $refused * $share)',
    replace: 'Math.max($longest * 12, $refused * $share)',
  },
  'a recreate flag that is not cleared': [
    {
      in: 'toCreating',
      within: "$enter($worker, 'creating', $now, $fields)",
      find: 'born_at: $born_at',
      replace: 'recreate: $worker.recreate, born_at: $born_at',
    },
    {in: 'decideDeleting', within: "$enter($worker, 'gone', $now, $fields)", find: 'recreate: false'},
  ],
  'a heartbeat that counts as progress': {
    in: 'heardFrom',
    find: '$list.some($field => $said[$field] !== $worker[$field]) ? $iso($now) : $worker.progress_at',
    replace: '$iso($now)',
  },
  'a slot that asks for the stream of its neighbour': {
    in: 'streamFor',
    find: '$number < 0 ? undefined : $number + $offset',
    replace: '$number < 0 ? undefined : $number + 1 + $offset',
  },
  'a run with a low priority that goes first': {
    in: 'byPreference',
    find: '$b.priority - $a.priority',
    replace: '$a.priority - $b.priority',
  },
  'a message that is published before its change is committed': [
    {
      in: 'reconcileSlots',
      within: '{$$decide; await $failures.$isolate($what, () => $publish($deps.$bus, $actions)); $$end}',
      find: 'return {...$writes, actions: [...$unpublished, ...$writes.actions]};',
      replace: 'await $publish($deps.$bus, $writes.actions); return {...$writes, actions: $unpublished};',
    },
    {
      in: 'askAgain',
      within: '$isOlderThan($worker.asked_at ?? $worker.phase_since_at, $limits.ask_again_s, $now)',
      find: '$limits.ask_again_s',
      replace: '1e9',
    },
  ],
  'a changed stream whose run gets no mark': {
    in: 'withRunMarks',
    find: 'if ($missing.size > 0) throw new $Unmarked();',
  },
  'a count that ends the mark of a change under way': {
    in: 'markAfterCount',
    within: '$isOlderThan($changed_at, $limit_s, $counted_ms) ? null : $changed_at',
    find: '$isOlderThan($changed_at, $limit_s, $counted_ms)',
    replace: '$isOlderThan($changed_at, -60, $counted_ms)',
  },
  'an overdue job that no tick ends': {in: 'tick', find: "await $failures.$isolate('end due jobs', $work);"},
  'a plan that forgets the waiting jobs': {
    in: 'workOf',
    find: '$isPaid ? $waiting - $gangs.length + $atJobs : 0',
    replace: '$isPaid ? $atJobs : 0',
  },
  'an ended job that asks for no tick': {
    in: 'decideFinish',
    within:
      '{answer: $answer, writes: {endedJob: $ended, worker: $worker, members: $members, events: $events}, wakes: true}',
    find: 'wakes: true',
  },
  'a job that no count of machines fails': {
    in: 'endAttempt',
    find: "$count < $most ? $scheduleJob($next, $now) : $closed($next, 'failed', $end, $now)",
    replace: "$count > 0 ? $scheduleJob($next, $now) : $closed($next, 'failed', $end, $now)",
  },
  'a waiting job of a second pool that no plan counts': {
    in: 'budgetSnapshotOf',
    within: '{const {pools: $pools, $$fields} = $all; $$rest}',
    find: '$hasDocument ? $jobs.get($pool.pool) : {waiting: 0}',
    replace: '$hasDocument && $pool === $pools[0] ? $jobs.get($pool.pool) : {waiting: 0}',
  },
  'a kept TPU that goes with the last work': {
    in: 'workOf',
    find: '{payer: $KEPT, open: $kept, bound: [], waiting: 0, own: undefined}',
    replace: '{payer: $KEPT, open: $kept > 1 ? $kept : 0, bound: [], waiting: 0, own: undefined}',
  },
  'a job that waits behind streams, however long': {
    in: 'planYields',
    find: '$late === null ? undefined : ($yielding ?? $next)?.worker',
    replace: '$late === null ? undefined : $yielding?.worker',
  },
  'a heartbeat after which the worker keeps the stream that a job waits for': {
    in: 'workAfter',
    find: '$saysItHas($worker, $lease) ? $worker.yields_to : null',
    replace: 'null',
  },
  'a run behind another run that has no reason': {
    in: 'whyWaiting',
    find: 'if ($share.ahead) return $behind($share.ahead.payer, $fleet);',
    replace: 'if ($share.ahead) return undefined;',
  },
  'a hub that is never tried again': {
    in: 'planBudgets',
    within: '{pauses: $pauses, reasons: $reasons, retries: $retries, $$rest}',
    find: 'retries: $retries',
    replace: 'retries: []',
  },
  'a constraint that no later one replaces': {
    in: 'goesOn',
    find: '$isSame && $fields.every($match) ? $before : $next',
    replace: '$before ?? $next',
  },
  'jobs that wait without a reason': {
    in: 'withWaits',
    find: '$goesOn($pool.jobs_wait, $work.get($jobs), $now)',
    replace: '$pool.jobs_wait',
  },
  'refusals of one zone that are many events': {
    in: 'recordRefusal',
    find: '$fold($worker.pool, $worker.zone, $limiter)',
    replace: 'undefined',
  },
  'a slow tick that forgets the pools that it left out': {
    in: 'recordLate',
    find: '{...$creates, late_pools: $late}',
    replace: '{...$creates, late_pools: []}',
  },
  'a notification that waits for an earlier one of its key for ever': {
    in: 'decideDue',
    within: '$sent_at === undefined ? $now : $msOf($sent_at) + $quiet * 1000',
    find: '$msOf($sent_at) + $quiet * 1000',
    replace: '$now + $quiet * 1000',
  },
  'failed boots that no agent clears': {
    in: 'afterAgent',
    find: '$failed !== null && $agent > $failed ? $cleared : $limiter',
    replace: '$limiter',
  },
  'a paused pool that is no reason': {
    in: 'limiterConstraint',
    find: "return $constraint('pool-paused', $about, null, $times);",
    replace: 'return undefined;',
  },
  'a pool without slots that is no reason': {
    in: 'whyWaiting',
    find: "if ($pool.workers_per_zone === 0) return $constraint('no-slot', $pool.pool);",
  },
  'an instance that runs and counts as lost': {
    in: 'NODE_STANDINGS',
    find: "RUNNING: 'up'",
    replace: "RUNNING: 'over'",
  },
  'an instance that is made and counts as lost': {
    in: 'NODE_STANDINGS',
    find: "PROVISIONING: 'coming'",
    replace: "PROVISIONING: 'over'",
  },
  'a job without a holder that no tick ends': {
    in: 'tick',
    find: "await $failures.$isolate('end the jobs that no worker holds', $work);",
  },
  'an ended run that waits': {
    in: 'endedAs',
    within: '{...$run, status: $status, reason: $reason, waits: null, history: $history, updated_at: $now}',
    find: 'waits: null',
  },
  'a budget without money for a TPU that is no reason': {
    in: 'whyWaiting',
    find: 'if ($share.refusal) return $share.refusal;',
  },
  'a leaving TPU that is named idle': {
    in: 'tpuConstraint',
    find: "if ($hasEnded($worker) || $phase === 'draining') return $leaving;",
  },
  'a leaving TPU that is no reason': {
    in: 'ofFullPool',
    find: "$worker => $worker.phase !== 'gone' && ($hasEnded($worker) || $worker.phase === 'draining')",
    replace: '() => false',
  },
};
