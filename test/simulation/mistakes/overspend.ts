/** Mistakes that pass a budget, a ceiling or a rate, or that charge the wrong payer. */
import type {Mistakes} from '../planting/anchors.ts';

export const OVERSPEND: Mistakes = {
  'a grant in another region that pays for no read of its stream': {
    in: 'withRead',
    find: '$withTraffic({...$stream, network_usd_per_byte: $bytePrice($zone, $region)}, $stream.size_bytes)',
    replace: '({...$stream, network_usd_per_byte: $bytePrice($zone, $region)})',
  },
  'a shard that crosses a region and costs nothing': {
    in: 'decideAdvance',
    find: '$withTraffic($progressed, $bytesOf($fold.counted))',
    replace: '$progressed',
  },
  'traffic that its month is not billed for': {
    in: 'readNetworkBill',
    find: 'months: {...$months, [$month]: ($months[$month] ?? 0) + $usd}',
    replace: 'months: $months',
  },
  'a run in another region that needs no permission': {
    in: 'crossRegionProblem',
    find: 'if ($allow_cross_region || $remote.length === 0) return undefined;',
    replace: 'if ($allow_cross_region || $remote.length >= 0) return undefined;',
  },
  'a price that rises and TPUs that keep the earlier price': {
    in: 'atPrice',
    find: '$worker.priced_as !== $pricedAs($pool)',
    replace: '$worker.priced_as === $pricedAs($pool)',
  },
  'a new price that counts from its tick alone': {
    in: 'atPrice',
    find: '$repricedAt($worker, $usd, $since_at === undefined ? $now : $msOf($since_at), $now)',
    replace: '$repricedAt($worker, $usd, $now, $now)',
  },
  'a node that costs nothing before the first word of its agent': {
    in: 'afterLook',
    find: 'return {...$worker, ready_at: $readySince($bounds, $now)};',
    replace: 'return $worker;',
  },
  'downloads that cost nothing': {
    in: 'withReceived',
    find: '$usd += ($after[$way] - $before[$way]) * $prices[$way];',
  },
  'downloads that each heartbeat bills again': {
    in: 'withReceived',
    find: '($after[$way] - $before[$way]) * $prices[$way]',
    replace: '$after[$way] * $prices[$way]',
  },
  'downloads of an incarnation that its run is not billed for': {
    in: 'addBill',
    find: '$run.spent_download_usd + $share.spent_download_usd',
    replace: '$run.spent_download_usd',
  },
  'a repeated create that the limiter does not count': {
    in: 'zoneAfter',
    find: "case 'asked again': return $withLimiter($zone, $asked, $now);",
    replace: "return $withLimiter($zone, $asked, $now); case 'asked again': return $zone;",
  },
  'a zone that refuses nodes and gets two canaries at once': {
    in: 'afterAsk',
    within: "case 'probing': $$steps",
    find: '{...$asked, next_at: $next}',
    replace: '$asked',
  },
  'a zone that loses its nodes young and gets creates all the same': {
    in: 'allowanceOf',
    find: '$areDue && $isInPace ? $most : 0',
    replace: '$areDue ? $most : 0',
  },
  'a refusal that leaves its zone open': {
    in: 'afterRefusal',
    find: "if ($state === 'stopped') {$$same; const $is = $mended; if (!$is) return $limiter;}",
    replace: "if ($state !== 'probing') return $limiter;",
  },
  'a node from before the refusal that opens its zone': {
    in: 'afterGiven',
    find: '$asked !== null && $since !== null && $asked > $since',
    replace: '$asked !== null && $since !== null',
  },
  'a budget that keeps no money for its deletes': {
    in: 'overspent',
    within: '{$$before; if (!$isPriceKnown) return $unknown; if ($is) return undefined; $$after}',
    find: '$spent_usd + $leaving_usd < $budget_usd',
    replace: '$spent_usd < $budget_usd',
  },
  'an incarnation that its pool is not billed for': {
    in: 'addBill',
    find: '{...$pool, spent_usd: $pool.spent_usd + $total}',
    replace: '{...$pool, spent_usd: Math.max($pool.spent_usd, $total)}',
  },
  'an incarnation that its month is not billed for': {
    in: 'writeSlots',
    find: '$spending && $spending !== $before.spending',
    replace: '$spending && $spending === $before.spending',
  },
  'a zone that refused a node and is asked again at once': {
    in: 'isDue',
    find: '$isOlderThan($limiter.next_at, 0, $now)',
    replace: '$limiter.next_at !== null',
  },
  'a request that may wait in the queue ten times too long': {
    in: 'askOf',
    find: '$limits.queue_s * 1000',
    replace: '$limits.queue_s * 10_000',
  },
  'a scale message above the ceiling of workers': {
    in: 'decideScale',
    find: '$whyRefused({...$pool, ...$current}, $ceilings, $isLarger ? $elsewhere : 0)',
    replace: '$whyRefused($pool, $ceilings)',
  },
  'a burst of wakes that costs a tick for each': {
    in: 'TickQueue',
    find: 'this.$paused_until_ms = $now + Math.max($$pauses)',
    replace: 'this.$paused_until_ms = $now - Math.max($$pauses)',
  },
  'a survey that counts the last stream of each page twice': [
    {in: 'countPage', find: 'if ($found.stream !== $stream) $streams += 1;', replace: '$streams += 1;'},
    {in: 'countPage', find: 'if ($found.$object.name <= $cursor.$after) continue;'},
  ],
  'a job whose time no payer is billed for': {
    in: 'payerOfWork',
    find: '$parseJobWork($work) === undefined ? $parseWork($work)?.run : $jobs',
    replace: '$parseWork($work)?.run',
  },
  'an attempt that costs its job nothing': {
    in: 'withAttempt',
    find: 'spent_usd: $job.spent_usd + ($cost_usd ?? 0)',
    replace: 'spent_usd: $job.spent_usd',
  },
  'a bill of a second pool that the pool of the deployment pays': {
    in: 'reconcileSlots',
    find: '$readShared($turn, $inputs.pool.pool, $$of)',
    replace: '$readShared($turn, $turn.deps.config.pool.pool, $$of)',
  },
  'idle time that no payer is billed for': {
    in: 'accrue',
    find: '{...$worker, costs: $costs, costs_at: $until, charged_to: $run}',
    replace:
      '$run === null ? {...$worker, costs_at: $until} : {...$worker, costs: $costs, costs_at: $until, charged_to: $run}',
  },
  'a budget of a run that pays for no downloads': [
    {
      in: 'decideBudgets',
      find: 'const $usd = $run.spent_usd + $run.spent_download_usd;',
      replace: 'const $usd = $run.spent_usd;',
    },
    {
      in: 'decideBudgets',
      find: '($living.runs.get($run.run) ?? 0) + ($living.runs.get($downloadsOf($run.run)) ?? 0)',
      replace: '$living.runs.get($run.run) ?? 0',
    },
  ],
  'a budget of a run that pays for no traffic': {
    in: 'decideBudgets',
    find: '$ended_usd + $run.network_usd + $living_usd',
    replace: '$ended_usd + $living_usd',
  },
  'a stopped zone that is asked each minute': {
    in: 'afterAsk',
    within: "case 'stopped': $$steps",
    find: '$iso($now + $try * 1000)',
    replace: '$iso($now + 60_000)',
  },
  'a pool that keeps TPUs beside those at work': {
    in: 'workOf',
    find: '$isPaid ? Math.max(0, $keptBy($pool, $now) - $asked) : 0',
    replace: '$isPaid ? $keptBy($pool, $now) : 0',
  },
  'a preempted TPU that its run does not count': {
    in: 'addPreemption',
    find: '$run.preemptions + 1',
    replace: '$run.preemptions',
  },
  'a run that costs less than its ended incarnations': {
    in: 'addBill',
    find: '$Math.max($run.cost_usd, $spent)',
    replace: '$run.cost_usd',
  },
  'a copy of the month without its living TPUs': {
    in: 'copyMonth',
    within:
      '{$$before; const $usd = $month.spent_usd + $livingInMonth($month, $workers.values(), $at); if ($usd === 0) return; $$after}',
    find: '$month.spent_usd + $livingInMonth($month, $workers.values(), $at)',
    replace: '$month.spent_usd',
  },
};
