/** Mistakes in jobs, in commands on hosts, and in pools that operators change. */
import type {Mistakes} from '../planting/anchors.ts';

export const ORDERS: Mistakes = {
  'a set-up that fails and is tried again': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: "if (!$CAUSES.some($OWN => $OWN === $CAUSE)) return $CLOSED($TOLD, 'failed', $END, $NOW);",
  },
  'a job that gets one retry more than it allows': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: '$FAILURES <= $JOB.max_retries',
    replace: '$FAILURES <= $JOB.max_retries + 1',
  },
  'a retry that keeps the failures of the job': {
    shown_by: 'hurried people',
    in: 'decideRetryJob',
    find: '{failures: 0, machine_failures: 0, error: null, cause: null, exit_code: null}',
    replace: '{error: null, cause: null, exit_code: null}',
  },
  'a cancel that changes an ended job': {
    shown_by: 'many jobs',
    in: 'decideCancelJob',
    find: 'if ($IS_FINAL($JOB)) return $REFUSED($TEXT);',
  },
  'an ended job that is still due': {
    shown_by: 'many jobs',
    in: 'closed',
    find: 'due_at: null',
  },
  'an ended job that expires on the same day': {
    shown_by: 'many jobs',
    in: 'keptUntil',
    find: '$DAYS * 86_400_000',
    replace: '$DAYS * 86_400',
  },
  'a deadline that is not due': {
    shown_by: 'short deadlines',
    in: 'dueAt',
    find: 'if ($DEADLINE !== null) $ENDS.push($MS_OF($DEADLINE));',
  },
  'a budget of a job that is not due': {
    shown_by: 'short deadlines',
    in: 'dueAt',
    find: 'if ($BUDGET !== null && $PRICE) $ENDS.push($END);',
  },
  'a timeout that is due ten times too late': {
    shown_by: 'unreliable messages',
    in: 'dueAt',
    find: '($TIMEOUT + $GRACE) * 1000',
    replace: '($TIMEOUT + $GRACE) * 10_000',
  },
  'a job with a low priority that goes first': {
    shown_by: 'priorities',
    in: 'rankOf',
    find: "String($MOST - $PRIORITY).padStart(4, '0')",
    replace: "String($MOST + $PRIORITY).padStart(4, '0')",
  },
  'an attempt that costs its time twice': {
    shown_by: 'many jobs',
    in: 'withAttempt',
    find: 'const $COST = $PRICE === null ? null : $HOURS * $PRICE;',
    replace: 'const $COST = $PRICE === null ? null : 2 * $HOURS * $PRICE;',
  },
  'an exit code that is lost': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: 'const {exit_code = null, ran = null} = $END;',
    replace: 'const [exit_code, {ran = null}] = [null, $END];',
  },
  'a clear that passes over its time': {
    shown_by: 'many jobs',
    edits: [
      {
        in: 'clear',
        find: "typeof $COMPLETED === 'string' && $COMPLETED < $BEFORE",
        replace: "typeof $COMPLETED === 'string'",
      },
      {
        in: 'clear',
        find: "[{field: 'completed_at', op: '<', value: $BEFORE}]",
        replace: "[{field: 'completed_at', op: '>', value: ''}]",
      },
    ],
  },
  'a clear that leaves the first job': {
    shown_by: 'many jobs',
    in: 'clear',
    find: '$SOME.filter(($EACH, $INDEX) => $IS_OLD($CURRENT[$INDEX] ?? {}))',
    replace: '$SOME.filter(($EACH, $INDEX) => $INDEX > 0 && $IS_OLD($CURRENT[$INDEX] ?? {}))',
  },
  'a retry by cause that revives every failed job': {
    shown_by: 'hurried people',
    in: 'failedFor',
    find: "{field: 'cause', op: '==', value: $CAUSE}",
    replace: "{field: 'status', op: '==', value: 'failed'}",
  },
  'a scale-down that ends a job': {
    shown_by: 'busy jobs',
    in: 'decideLiving',
    find: "$WANTED === 'unwanted' && $WORKER.phase === 'working' && $WORKER.work !== null",
    replace:
      "$WANTED === 'unwanted' && $WORKER.phase === 'working' && $WORKER.work !== null && !$WORKER.work.startsWith('job:')",
  },
  'a command that one worker never gets': {
    shown_by: 'orders',
    in: 'startExec',
    find: "typeof $TARGETS === 'string' ? [] : $TARGETS.map(($WORKER) => $NAME)",
    replace: "typeof $TARGETS === 'string' ? [] : $TARGETS.slice(1).map(($WORKER) => $NAME)",
  },
  'a command with a taken id that is not rejected': {
    shown_by: 'orders',
    in: 'startExec',
    find: 'if ($EXEC.message_id !== $ID) return $TEXT;',
  },
  'a worker that is told of a command after its end': {
    shown_by: 'orders',
    in: 'decideEndExec',
    find: '$IS_LAST && $WORKER.execs.includes($ID) ? $WITHOUT_EXEC($WORKER, $ID) : undefined',
    replace: 'undefined',
  },
  'a command that ends before its last host': {
    shown_by: 'commands on slices',
    in: 'concludeExec',
    find: 'if ($OPEN > 0 && !$ANYWAY) return;',
  },
  'a command that counts no failed host': {
    shown_by: 'commands on slices',
    in: 'concludeExec',
    find: 'const hosts_failed = hosts - $SUCCEEDED;',
    replace: 'const hosts_failed = 0;',
  },
  'an exit code of a command that is lost': {
    shown_by: 'orders',
    in: 'decideEndExec',
    find: '{...$HOST, status: $OUTCOME, exit_code, error, ended_at: $AT}',
    replace: '{...$HOST, status: $OUTCOME, exit_code: 0, error: error, ended_at: $AT}',
  },
  'a worker that never hears of a command': {
    shown_by: 'orders',
    in: 'decideHeartbeat',
    find: 'execs: $HEARD.execs',
    replace: 'execs: []',
  },
  'a command that has no time to start': {
    shown_by: 'orders',
    in: 'execTimes',
    find: '($START + $TIMEOUT) * 1000',
    replace: '$TIMEOUT * 1000',
  },
  'a command whose record expires on the same day': {
    shown_by: 'orders',
    in: 'execTimes',
    find: '$DAYS * 86_400_000',
    replace: '$DAYS * 86_400',
  },
  'a pause of a pool that stops nothing': {
    shown_by: 'hasty pauses',
    in: 'decidePausePool',
    find: '{...$POOL, message_times, limiter: $AFTER_PAUSE($POOL.limiter, $NOW)}',
    replace: '{...$POOL, message_times: message_times}',
  },
  'a late pause that ends a resume': {
    shown_by: 'busy pauses',
    in: 'decidePausePool',
    find: "if ($IS_OUTDATED($POOL, 'creates', $AT)) return $OUTDATED;",
  },
  'a new source without a new version': {
    shown_by: 'orders',
    in: 'decideUpdate',
    find: '$POOL.source_version + 1',
    replace: '$POOL.source_version',
  },
  'an update that forgets the earlier environment': {
    shown_by: 'orders',
    in: 'decideUpdate',
    find: 'environment: {...$POOL.environment, ...$FIELDS}',
    replace: 'environment: {...$FIELDS}',
  },
  'a new pool with the size of another': {
    shown_by: 'orders',
    in: 'newPool',
    find: '{...$NEW, pool: $NAME, ...$TERMS, workers_per_zone, $$$SETTINGS}',
    replace: '{...$NEW, pool: $NAME, ...$TERMS, workers_per_zone: 1, $$$SETTINGS}',
  },
  'a node of a deployment whose name begins with ours': {
    shown_by: 'strays',
    in: 'isLabelled',
    find: "$LABELS['managed-by'] === 'gleaner' && $LABELS[$LABEL] === $DEPLOYMENT",
    replace: "$LABELS['managed-by'] === 'gleaner' && $LABELS[$LABEL]?.startsWith($DEPLOYMENT) === true",
  },
  'a waiting job that forgets its deadline': {
    shown_by: 'short deadlines',
    in: 'scheduleJob',
    find: 'due_at: $JOB.deadline_at',
    replace: 'due_at: null',
  },
  'a job that starts after its deadline': {
    shown_by: 'short jobs',
    in: 'grantProblem',
    find: "if ($DEADLINE !== null && $MS_OF($DEADLINE) <= $NOW) return $FAILED('deadline', $TEXT);",
  },
  'an agent that starts again and again and charges no machine': {
    shown_by: 'short deadlines',
    in: 'endByRequest',
    find: "$CLAIMED === null ? $FAILED('machine', $TEXT) : $PREEMPTED($OTHER)",
    replace: '$PREEMPTED($OTHER)',
  },
  'a pause of a pool that stops no create under way': {
    shown_by: 'hasty pauses',
    in: 'createNode',
    find: "const $IS_PAUSED = $POOL?.limiter.cause === 'person';",
    replace: 'const $IS_PAUSED = false;',
  },
  'a node of another provider than that of its pool': {
    shown_by: 'instances',
    in: 'nodeRequest',
    find: 'const {provider, $$$TERMS} = $POOL;',
    replace: "const {provider, $$$TERMS} = {...$POOL, provider: 'tpu-api'};",
  },
  'a retried job that still expires': {
    shown_by: 'hurried people',
    in: 'decideRetryJob',
    find: '$LATER_THAN_KEPT($JOB.expire_at, $NOW)',
    replace: '$JOB.expire_at',
  },
  'a clear that deletes a job in its retry': {
    shown_by: 'collisions',
    in: 'clear',
    find: '$IS_FINAL({status: $STATUS}) && ($BEFORE === undefined || $IS_BEFORE)',
    replace: '$BEFORE === undefined || $IS_BEFORE',
  },
};
