/** Mistakes that lose a sample, a stream, a job, a record or an operator's message. */
import type {Mistakes} from '../planting/anchors.ts';

export const LOSE: Mistakes = {
  'a run without a sample that is completed': {
    in: 'summarizeRun',
    find: "$isAllRejected ? 'failed' : 'completed'",
    replace: "'completed'",
  },
  'a checkpoint that counts past a gap': [
    {
      in: 'foldShards',
      find: '$shard.shard > $progress.total_shards + 1 && !$progress.finished',
      replace: 'false',
    },
    {
      in: 'misfitAfter',
      find: '$shard.first_sample !== $expected',
      replace: '$shard.first_sample < $expected',
    },
  ],
  'a listing of shards that begins one shard too late': {
    in: 'countListed',
    within: '{start: $start}',
    find: '$known.total_shards + 1',
    replace: '$known.total_shards + 2',
  },
  'a stream document that drops the fields of the next release': {
    in: 'stored',
    find: 'return $z.looseObject($shape);',
    replace: 'return $z.object($shape);',
  },
  'a rebuild cursor that passes the stream it has left for the next page': {
    in: 'rebuildPage',
    find: '$page.at(-1)?.$object.name ?? $listed.at(-1)?.name',
    replace: '$listed.at(-1)?.name',
  },
  'a survey of the bucket that ends with its first full page': {
    in: 'countPage',
    find: '$listed.length === $limit && $last !== undefined',
    replace: '$listed.length > $limit && $last !== undefined',
  },
  'a registration of streams that ends with its first full page': {
    in: 'registerPage',
    find: '$listed.length < $limit ? undefined : $listed.at(-1)?.name',
    replace: '$listed.length <= $limit ? undefined : $listed.at(-1)?.name',
  },
  'a resync that is made once and never again': {
    in: 'publishOpenTasks',
    find: '!$last || $isOlderThan($last.created_at, $config.audit_s - 30, $now)',
    replace: '!$last',
  },
  'a task that is given up after its first failure': {
    in: 'stepOrWait',
    within: '{const {message: $message} = $error; $$log}',
    find: '{waits: $message}',
    replace: '{result: $message}',
  },
  'a run that continues without an operator after its document was lost': {
    in: 'ensureRun',
    find: "$isLost ? 'paused' : $frozen ? 'active' : 'failed'",
    replace: "$frozen ? 'active' : 'failed'",
  },
  'a pause that the next tick ends': {
    in: 'summarizeRun',
    find: "$run.status === 'paused' ? 'paused' : 'active'",
    replace: "'active'",
  },
  'a scale message, outdated by half, that sets all of its fields': {
    in: 'sortSettings',
    within:
      '{$$before; const {current: $current, $$others} = $split; const $kept = $keep; return {$$sorted};}',
    find: '$settings.filter(([$key]) => $current.includes($key))',
    replace: '$settings',
  },
  'a stop that a later message outdates': {
    in: 'decideRunAction',
    within:
      "{$$before; const $become = ($$of) => {if ($action !== 'stop' && $isOutdated) return $outdated; $$rest}; $$after}",
    find: "case 'stop': $$steps",
    replace: "case 'stop': if ($isOutdated) return $outdated; $$steps",
  },
  'a rejected message that leaves no record': {
    in: 'recordRejected',
    find: 'if (!(await $tx.get($path))) $record($tx, $path, $$outcome);',
    replace: 'if (await $tx.get($path)) $record($tx, $path, $$outcome);',
  },
  'an event that expires within an hour': {
    in: 'recordEvent',
    within: '{...$event, text: $text, at: $at, $$expiry}',
    find: '$days * 86_400_000',
    replace: '$days * 86_400',
  },
  'a command that comes before the first event of its run and is rejected': {
    in: 'ensureKnownRun',
    within:
      '{$$before; const [$stream] = await $deps.$objects.list($prefix, {limit: 1}); if ($stream) await $ensure($$run);}',
    find: 'if ($stream) $ensureRun',
    replace: 'if (!$stream) $ensureRun',
  },
  'a job whose event was lost and that no tick takes up': {
    in: 'tick',
    find: "await $failures.$isolate('schedule pending jobs', $work);",
  },
  'a job of a dead worker that never waits again': {
    in: 'endIncarnation',
    find: 'if ($work?.job && !$isEnded) {$$end}',
  },
  'a job that ends its last machine and fails without an attempt': {
    in: 'withAttempt',
    find: 'attempts: [...$job.attempts, $attempt].slice(-$most)',
    replace: 'attempts: $job.attempts.length > 3 ? $job.attempts : [...$job.attempts, $attempt]',
  },
  'a document that is overwritten though no release understands it': [
    {
      in: 'recordsOf',
      find: 'if ($alone.get($tx)?.has($path)) return;',
      replace: '',
    },
  ],
  'a task that begins again at the page where it ended': {
    in: 'open',
    within: "{...$stored, ...{task: $task, run: $run, status: 'open', cursor: '', $$others}, $$times}",
    find: "cursor: ''",
    replace: "cursor: $stored?.cursor ?? ''",
  },
  'a run whose streams expire on the day of its end': {
    in: 'expireSome',
    find: '!$isOlderThan($run.updated_at, $days * 86_400, $now)',
    replace: '!$isOlderThan($run.updated_at, 60, $now)',
  },
  'a run that goes on and loses the documents of its streams': {
    in: 'reopenRun',
    within: "{...$run, ...$none, status: 'active', expired_at: null}",
    find: 'expired_at: null',
  },
  'an expired run whose streams a resync registers': {
    in: 'resyncRun',
    find: "$parent?.status === 'cancelled' || $parent?.stopped_at || $parent?.expired_at",
    replace: "$parent?.status === 'cancelled' || $parent?.stopped_at",
  },
  'a notification that its receiver refuses once and that is not sent again': {
    in: 'afterFailure',
    find: '$isLost ? null : $iso($now + $wait_s * 1000)',
    replace: 'null',
  },
  'a stop that is not kept in the bucket': {
    in: 'stop',
    find: "if ((await $get($store, $run))?.status === 'cancelled') $copy;",
  },
  'a rebuild of a run that was stopped and is expired': [
    {
      in: 'rebuildRun',
      find: "if ($parent.expired_at !== null && $parent.status === 'cancelled') return $refused;",
    },
    {
      in: 'isClosed',
      find: '$before !== undefined || $isLate || $expired_at !== null',
      replace: '$before !== undefined || $isLate',
    },
  ],
  'a notification that is lost within minutes': {
    in: 'afterFailure',
    find: '$now - $msOf($notice.at) > $most * 1000',
    replace: '$now - $msOf($notice.at) > $most',
  },
};
