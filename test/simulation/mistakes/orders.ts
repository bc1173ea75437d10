/** Mistakes in jobs, in commands on hosts, and in pools that operators change. */
import type {Mistakes} from '../planting/anchors.ts';

export const ORDERS: Mistakes = {
  'a set-up that fails and is tried again': {
    in: 'endAttempt',
    find: "if (!$causes.some($own => $own === $cause)) return $closed($told, 'failed', $end, $now);",
  },
  'a job that gets one retry more than it allows': {
    in: 'endAttempt',
    find: '$failures <= $job.max_retries',
    replace: '$failures <= $job.max_retries + 1',
  },
  'a retry that keeps the failures of the job': {
    in: 'decideRetryJob',
    find: '{failures: 0, machine_failures: 0, error: null, cause: null, exit_code: null}',
    replace: '{error: null, cause: null, exit_code: null}',
  },
  'a retry of a completed job': {
    in: 'decideRetryJob',
    find: "$job.status !== 'failed' && $job.status !== 'cancelled'",
    replace: "$job.status === 'scheduled' || $job.status === 'running'",
  },
  'a cancel that changes an ended job': {
    in: 'decideCancelJob',
    within:
      "{$$before; if ($isFinal($job)) return $refused($text); const $end = {outcome: 'cancelled', $$why}; const $next = $ended; return $applied;}",
    find: 'if ($isFinal($job)) return $refused($text);',
  },
  'an ended job that is still due': {
    in: 'closed',
    within: '{status: $status, queue: null, lease: null, due_at: null, cause: $cause, $$others}',
    find: 'due_at: null',
  },
  'an ended job that expires on the same day': {
    in: 'keptUntil',
    within: '$at => $iso($at + $days * 86_400_000)',
    find: '$days * 86_400_000',
    replace: '$days * 86_400',
  },
  'a deadline that is not due': {
    in: 'dueAt',
    find: 'if ($deadline !== null) $ends.push($msOf($deadline));',
  },
  'a budget of a job that is not due': {
    in: 'dueAt',
    find: 'if ($budget !== null && $price) $ends.push($end);',
  },
  'a timeout that is due ten times too late': {
    in: 'dueAt',
    within: 'const $ends = [$now + ($timeout + $grace) * 1000];',
    find: '($timeout + $grace) * 1000',
    replace: '($timeout + $grace) * 10_000',
  },
  'a job that starts again after its budget is spent': {
    in: 'grantProblem',
    within: "{$$before; if ($spent < $budget) return undefined; return $failed('budget', $text);}",
    find: 'if ($spent < $budget) return undefined;',
    replace: 'if ($spent < $budget * 100) return undefined;',
  },
  'a job with a low priority that goes first': {
    in: 'rankOf',
    find: "String($most - $priority).padStart(4, '0')",
    replace: "String($most + $priority).padStart(4, '0')",
  },
  'an attempt that costs its time twice': {
    in: 'withAttempt',
    find: 'const $cost = $price === null ? null : $hours * $price;',
    replace: 'const $cost = $price === null ? null : 2 * $hours * $price;',
  },
  'an exit code that is lost': {
    in: 'endAttempt',
    within: "case 'failed': {$$steps}",
    find: 'exit_code: $end.exit_code ?? null',
    replace: 'exit_code: null',
  },
  'a clear that passes over its time': [
    {
      in: 'clear',
      find: "typeof $completed === 'string' && $completed < $before",
      replace: "typeof $completed === 'string'",
    },
    {
      in: 'clear',
      find: "[{field: 'completed_at', op: '<', value: $before}]",
      replace: "[{field: 'completed_at', op: '>', value: ''}]",
    },
  ],
  'a clear that leaves the first job': {
    in: 'clear',
    find: '$some.filter(($each, $index) => $isOld($current[$index] ?? {}))',
    replace: '$some.filter(($each, $index) => $index > 0 && $isOld($current[$index] ?? {}))',
  },
  'a retry by cause that revives every failed job': {
    in: 'failedFor',
    find: "{field: 'cause', op: '==', value: $cause}",
    replace: "{field: 'status', op: '==', value: 'failed'}",
  },
  'a scale-down that ends a job': {
    in: 'decideLiving',
    find: "$wanted === 'unwanted' && $worker.phase === 'working' && $worker.work !== null",
    replace:
      "$wanted === 'unwanted' && $worker.phase === 'working' && $worker.work !== null && !$worker.work.startsWith('job:')",
  },
  'a command of one pool that runs in every pool': {
    in: 'workersOf',
    find: "[{field: 'pool', op: '==', value: $target.pool}]",
    replace: '[]',
  },
  'a command that one worker never gets': {
    in: 'startExec',
    find: "typeof $targets === 'string' ? [] : $targets.map(($worker) => $name)",
    replace: "typeof $targets === 'string' ? [] : $targets.slice(1).map(($worker) => $name)",
  },
  'a command with a taken id that is not rejected': {
    in: 'startExec',
    find: 'if ($exec.message_id !== $id) return $text;',
  },
  'a repeated report that ends a command again': {
    in: 'decideEndExec',
    within:
      '{$$before; const $ended = {...$host, status: $outcome, exit_code: $code, error: $error, ended_at: $at}; $$after}',
    find: 'if ($hasHostEnded($host)) return $decision;',
  },
  'a worker that is told of a command after its end': {
    in: 'decideEndExec',
    find: '$isLast && $worker.execs.includes($id) ? $withoutExec($worker, $id) : undefined',
    replace: 'undefined',
  },
  'a host that is given up too early': {
    in: 'isOverdue',
    within: '({deadline_at: $deadline}, $now) => $body',
    find: '$isOlderThan($deadline, $report, $now)',
    replace: '$isOlderThan($deadline, -240, $now)',
  },
  'a command that ends before its last host': {
    in: 'concludeExec',
    find: 'if ($open > 0 && !$anyway) return;',
  },
  'a command that counts no failed host': {
    in: 'concludeExec',
    within:
      '{$$before; const $failed = $hosts - $succeeded; const $counts = {hosts: $hosts, hosts_done: $done, hosts_failed: $failed}; $$after}',
    find: 'const $failed = $hosts - $succeeded;',
    replace: 'const $failed = 0;',
  },
  'an exit code of a command that is lost': {
    in: 'decideEndExec',
    find: '{...$host, status: $outcome, exit_code: $code, error: $error, ended_at: $at}',
    replace: '{...$host, status: $outcome, exit_code: 0, error: $error, ended_at: $at}',
  },
  'a worker that never hears of a command': {
    in: 'decideHeartbeat',
    find: 'execs: $heard.execs',
    replace: 'execs: []',
  },
  'a command that has no time to start': {
    in: 'execTimes',
    within:
      '{created_at: $created, deadline_at: $iso($now + ($start + $timeout) * 1000), expire_at: $expiry}',
    find: '($start + $timeout) * 1000',
    replace: '$timeout * 1000',
  },
  'a command whose record expires on the same day': {
    in: 'execTimes',
    within: '{created_at: $created, deadline_at: $deadline, expire_at: $iso($now + $days * 86_400_000)}',
    find: '$days * 86_400_000',
    replace: '$days * 86_400',
  },
  'a pause of a pool that stops nothing': {
    in: 'decidePausePool',
    find: '{...$pool, message_times: $said, limiter: $afterPause($pool.limiter, $now)}',
    replace: '{...$pool, message_times: $said}',
  },
  'a late pause that ends a resume': {
    in: 'decidePausePool',
    within:
      "{if ($isOutdated($pool, 'creates', $at)) return $outdated; const $said = $times; const $next = {...$pool, message_times: $said, limiter: $paused}; $$rest}",
    find: "if ($isOutdated($pool, 'creates', $at)) return $outdated;",
  },
  'a resume that leaves the zones closed': {
    in: 'resumePool',
    find: 'for (const $zone of $zones.filter($isEarlier)) $records.set($tx, {...$zone, limiter: $open, updated_at: $at});',
  },
  'a new source without a new version': {
    in: 'decideUpdate',
    find: '$pool.source_version + 1',
    replace: '$pool.source_version',
  },
  'an update that forgets the earlier environment': {
    in: 'decideUpdate',
    find: 'environment: {...$pool.environment, ...$fields}',
    replace: 'environment: {...$fields}',
  },
  'a new pool with the size of another': {
    in: 'newPool',
    find: 'workers_per_zone: $count',
    within: '{...$new, pool: $name, ...$terms, workers_per_zone: $count, ...$settings, ...$code}',
    replace: 'workers_per_zone: 1',
  },
  'a node of a deployment whose name begins with ours': {
    in: 'isLabelled',
    find: "$labels['managed-by'] === 'gleaner' && $labels[$label] === $deployment",
    replace: "$labels['managed-by'] === 'gleaner' && $labels[$label]?.startsWith($deployment) === true",
  },
  'a waiting job that forgets its deadline': {
    in: 'scheduleJob',
    find: 'due_at: $job.deadline_at',
    replace: 'due_at: null',
  },
  'a job that starts after its deadline': {
    in: 'grantProblem',
    within: '{$$before; if ($budget === null) return undefined; $$after}',
    find: "if ($deadline !== null && $msOf($deadline) <= $now) return $failed('deadline', $text);",
  },
  'an agent that starts again and again and charges no machine': {
    in: 'endByRequest',
    find: "$claimed === null ? $failed('machine', $text) : $preempted($other)",
    replace: '$preempted($other)',
  },
  'a resume that opens a zone that refused a node since': {
    in: 'resumePool',
    find: 'for (const $zone of $zones.filter($isEarlier)) $records.set($tx, {...$zone, limiter: $open, updated_at: $at});',
    replace: 'for (const $zone of $zones) $records.set($tx, {...$zone, limiter: $open, updated_at: $at});',
  },
  'a pause of a pool that stops no create under way': {
    in: 'createNode',
    find: "const $isPaused = $pool?.limiter.cause === 'person';",
    replace: 'const $isPaused = false;',
  },
  'a node of another provider than that of its pool': {
    in: 'nodeRequest',
    find: 'provider: $pool.provider',
    replace: "provider: 'tpu-api'",
  },
  'a retried job that still expires': {
    in: 'decideRetryJob',
    within: '{completed_at: null, expire_at: $laterThanKept($job.expire_at, $now), $$others}',
    find: '$laterThanKept($job.expire_at, $now)',
    replace: '$job.expire_at',
  },
  'a late retry that revives a job': {
    in: 'decideRetryJob',
    within:
      "{const {outdated: $outdated} = $split; if ($outdated.length > 0) return $late; if ($job.cause === 'invalid') return $invalid; $$after}",
    find: '$outdated.length > 0',
    replace: '$outdated.length > 1',
  },
  'a clear that deletes a job in its retry': {
    in: 'clear',
    find: '$isFinal({status: $status}) && ($before === undefined || $isBefore)',
    replace: '$before === undefined || $isBefore',
  },
  'kept TPUs that the next bill forgets': {
    in: 'withDeployed',
    find: 'const $own = {spent_usd: $spent, message_times: $said, limiter: $limiter, keep: $keep, source: $source, environment: $environment, source_version: $version};',
    replace:
      'const $own = {spent_usd: $spent, message_times: $said, limiter: $limiter, source: $source, environment: $environment, source_version: $version};',
  },
};
