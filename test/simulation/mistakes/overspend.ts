/** Mistakes that pass a budget, a ceiling or a rate, or that charge the wrong payer. */
import type {Mistakes} from '../planting/anchors.ts';

export const OVERSPEND: Mistakes = {
  'a grant in another region that pays for no read of its stream': {
    shown_by: 'run budgets',
    in: 'withRead',
    find: '$WITH_TRAFFIC({...$STREAM, network_usd_per_byte: $BYTE_PRICE($ZONE, $REGION)}, $STREAM.size_bytes)',
    replace: '({...$STREAM, network_usd_per_byte: $BYTE_PRICE($ZONE, $REGION)})',
  },
  'a shard that crosses a region and costs nothing': {
    shown_by: 'run budgets',
    in: 'decideAdvance',
    find: '$WITH_TRAFFIC($PROGRESSED, $BYTES_OF($FOLD.counted))',
    replace: '$PROGRESSED',
  },
  'traffic that its month is not billed for': {
    shown_by: 'run budgets',
    in: 'readNetworkBill',
    find: 'months: {...$MONTHS, [$MONTH]: ($MONTHS[$MONTH] ?? 0) + $USD}',
    replace: 'months: $MONTHS',
  },
  'a run in another region that needs no permission': {
    shown_by: 'run budgets',
    in: 'crossRegionProblem',
    find: 'if ($ALLOW_CROSS_REGION || $REMOTE.length === 0) return undefined;',
    replace: 'if ($ALLOW_CROSS_REGION || $REMOTE.length >= 0) return undefined;',
  },
  'a price that rises and TPUs that keep the earlier price': {
    shown_by: 'dearer TPUs',
    in: 'atPrice',
    find: '$WORKER.priced_as !== $PRICED_AS($POOL)',
    replace: '$WORKER.priced_as === $PRICED_AS($POOL)',
  },
  'a new price that counts from its tick alone': {
    shown_by: 'dearer TPUs',
    in: 'atPrice',
    find: '$REPRICED_AT($WORKER, $USD, $SINCE_AT === undefined ? $NOW : $MS_OF($SINCE_AT), $NOW)',
    replace: '$REPRICED_AT($WORKER, $USD, $NOW, $NOW)',
  },
  'a node that costs nothing before the first word of its agent': {
    in: 'afterLook',
    find: 'return {...$WORKER, ready_at: $READY_SINCE($BOUNDS, $NOW)};',
    replace: 'return $WORKER;',
  },
  'downloads that cost nothing': {
    shown_by: 'run budgets',
    in: 'withReceived',
    find: '$USD += ($AFTER[$WAY] - $BEFORE[$WAY]) * $PRICES[$WAY];',
  },
  'downloads that each heartbeat bills again': {
    shown_by: 'run budgets',
    in: 'withReceived',
    find: '($AFTER[$WAY] - $BEFORE[$WAY]) * $PRICES[$WAY]',
    replace: '$AFTER[$WAY] * $PRICES[$WAY]',
  },
  'downloads of an incarnation that its run is not billed for': {
    shown_by: 'run budgets',
    in: 'addBill',
    find: '$RUN.spent_download_usd + $SHARE.spent_download_usd',
    replace: '$RUN.spent_download_usd',
  },
  'a repeated create that the limiter does not count': {
    shown_by: 'slow providers',
    in: 'zoneAfter',
    find: "case 'asked again': return $WITH_LIMITER($ZONE, $ASKED, $NOW);",
    replace: "return $WITH_LIMITER($ZONE, $ASKED, $NOW); case 'asked again': return $ZONE;",
  },
  'a zone that refuses nodes and gets two canaries at once': {
    shown_by: 'scarce wide',
    in: 'afterAsk',
    within: "case 'probing': $$$STEPS",
    find: '{...$ASKED, next_at: $NEXT}',
    replace: '$ASKED',
  },
  'a zone that loses its nodes young and gets creates all the same': {
    shown_by: 'lost wide',
    in: 'allowanceOf',
    find: '$ARE_DUE && $IS_IN_PACE ? $MOST : 0',
    replace: '$ARE_DUE ? $MOST : 0',
  },
  'a refusal that leaves its zone open': {
    shown_by: 'scarce zones',
    in: 'afterRefusal',
    find: "if ($STATE === 'stopped') {$$$SAME; const $IS = $MENDED; if (!$IS) return $LIMITER;}",
    replace: "if ($STATE !== 'probing') return $LIMITER;",
  },
  'a node from before the refusal that opens its zone': {
    shown_by: 'scarce wide',
    in: 'afterGiven',
    find: '$ASKED !== null && $SINCE !== null && $ASKED > $SINCE',
    replace: '$ASKED !== null && $SINCE !== null',
  },
  'a budget that keeps no money for its deletes': {
    shown_by: 'small budgets',
    in: 'overspent',
    find: '$SPENT_USD + $LEAVING_USD < $BUDGET_USD',
    replace: '$SPENT_USD < $BUDGET_USD',
  },
  'an incarnation that its pool is not billed for': {
    shown_by: 'many jobs',
    in: 'addBill',
    find: '{...$POOL, spent_usd: $POOL.spent_usd + $TOTAL}',
    replace: '{...$POOL, spent_usd: Math.max($POOL.spent_usd, $TOTAL)}',
  },
  'an incarnation that its month is not billed for': {
    shown_by: 'shared month',
    in: 'writeSlots',
    find: '$SPENDING && $SPENDING !== $BEFORE.spending',
    replace: '$SPENDING && $SPENDING === $BEFORE.spending',
  },
  'a zone that refused a node and is asked again at once': {
    shown_by: 'scarce wide',
    in: 'isDue',
    find: '$IS_OLDER_THAN($LIMITER.next_at, 0, $NOW)',
    replace: '$LIMITER.next_at !== null',
  },
  'a request that may wait in the queue ten times too long': {
    shown_by: 'slow providers',
    in: 'askOf',
    find: '$LIMITS.queue_s * 1000',
    replace: '$LIMITS.queue_s * 10_000',
  },
  'a scale message above the ceiling of workers': {
    shown_by: 'busy operators',
    in: 'decideScale',
    find: '$WHY_REFUSED({...$POOL, ...$CURRENT}, $CEILINGS, $IS_LARGER ? $ELSEWHERE : 0)',
    replace: '$WHY_REFUSED($POOL, $CEILINGS)',
  },
  'a burst of wakes that costs a tick for each': {
    shown_by: 'lost wide',
    in: 'TickQueue',
    find: 'this.$PAUSED_UNTIL_MS = $NOW + Math.max($$$PAUSES)',
    replace: 'this.$PAUSED_UNTIL_MS = $NOW - Math.max($$$PAUSES)',
  },
  'a survey that counts the last stream of each page twice': {
    shown_by: 'tiny pages',
    edits: [
      {in: 'countPage', find: 'if ($FOUND.stream !== $STREAM) $STREAMS += 1;', replace: '$STREAMS += 1;'},
      {in: 'countPage', find: 'if ($FOUND.$OBJECT.name <= $CURSOR.$AFTER) continue;'},
    ],
  },
  'a job whose time no payer is billed for': {
    shown_by: 'many jobs',
    in: 'payerOfWork',
    find: '$PARSE_JOB_WORK($WORK) === undefined ? $PARSE_WORK($WORK)?.run : $JOBS',
    replace: '$PARSE_WORK($WORK)?.run',
  },
  'an attempt that costs its job nothing': {
    shown_by: 'many jobs',
    in: 'withAttempt',
    find: 'spent_usd: $JOB.spent_usd + ($COST_USD ?? 0)',
    replace: 'spent_usd: $JOB.spent_usd',
  },
  'a bill of a second pool that the pool of the deployment pays': {
    shown_by: 'orders',
    in: 'reconcileSlots',
    find: '$READ_SHARED($TURN, $INPUTS.pool.pool, $$$OF)',
    replace: '$READ_SHARED($TURN, $TURN.deps.config.pool.pool, $$$OF)',
  },
  'idle time that no payer is billed for': {
    in: 'accrue',
    find: '{...$WORKER, costs: $COSTS, costs_at: $UNTIL, charged_to: $RUN}',
    replace:
      '$RUN === null ? {...$WORKER, costs_at: $UNTIL} : {...$WORKER, costs: $COSTS, costs_at: $UNTIL, charged_to: $RUN}',
  },
  'a budget of a run that pays for no downloads': {
    shown_by: 'run budgets',
    edits: [
      {
        in: 'decideBudgets',
        find: 'const $USD = $RUN.spent_usd + $RUN.spent_download_usd;',
        replace: 'const $USD = $RUN.spent_usd;',
      },
      {
        in: 'decideBudgets',
        find: '($LIVING.runs.get($RUN.run) ?? 0) + ($LIVING.runs.get($DOWNLOADS_OF($RUN.run)) ?? 0)',
        replace: '$LIVING.runs.get($RUN.run) ?? 0',
      },
    ],
  },
  'a stopped zone that is asked each minute': {
    shown_by: 'scarce zones',
    in: 'afterAsk',
    within: "case 'stopped': $$$STEPS",
    find: '$ISO($NOW + $TRY * 1000)',
    replace: '$ISO($NOW + 60_000)',
  },
  'a preempted TPU that its run does not count': {
    shown_by: 'small budgets',
    in: 'addPreemption',
    find: '$RUN.preemptions + 1',
    replace: '$RUN.preemptions',
  },
  'a run that costs less than its ended incarnations': {
    shown_by: 'many jobs',
    in: 'addBill',
    find: '$MATH.max($RUN.cost_usd, $SPENT)',
    replace: '$RUN.cost_usd',
  },
  'a copy of the month without its living TPUs': {
    shown_by: 'shared month',
    in: 'copyMonth',
    find: '$MONTH.spent_usd + $LIVING_IN_MONTH($MONTH, $WORKERS.values(), $AT)',
    replace: '$MONTH.spent_usd',
  },
};
