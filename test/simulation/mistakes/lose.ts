/** Mistakes that lose a sample, a stream, a job, a record or an operator's message. */
import type {Mistakes} from '../planting/anchors.ts';

export const LOSE: Mistakes = {
  'a run without a sample that is completed': {
    shown_by: 'single lines',
    in: 'summarizeRun',
    find: "$IS_ALL_REJECTED ? 'failed' : 'completed'",
    replace: "'completed'",
  },
  'a checkpoint that counts past a gap': {
    edits: [
      {
        in: 'foldShards',
        find: '$SHARD.shard > $PROGRESS.total_shards + 1 && !$PROGRESS.finished',
        replace: 'false',
      },
      {
        in: 'misfitAfter',
        find: '$SHARD.first_sample !== $EXPECTED',
        replace: '$SHARD.first_sample < $EXPECTED',
      },
    ],
  },
  'a listing of shards that begins one shard too late': {
    shown_by: 'unreliable messages',
    in: 'countListed',
    find: '$KNOWN.total_shards + 1',
    replace: '$KNOWN.total_shards + 2',
  },
  'a stream document that drops the fields of the next release': {
    shown_by: 'left alone',
    in: 'stored',
    find: 'return $Z.looseObject($SHAPE);',
    replace: 'return $Z.object($SHAPE);',
  },
  'a rebuild cursor that passes the stream it has left for the next page': {
    shown_by: 'tiny pages',
    in: 'rebuildPage',
    find: '$PAGE.at(-1)?.$OBJECT.name ?? $LISTED.at(-1)?.name',
    replace: '$LISTED.at(-1)?.name',
  },
  'a survey of the bucket that ends with its first full page': {
    shown_by: 'tiny pages',
    in: 'countPage',
    find: '$LISTED.length === $LIMIT && $LAST !== undefined',
    replace: '$LISTED.length > $LIMIT && $LAST !== undefined',
  },
  'a registration of streams that ends with its first full page': {
    shown_by: 'tiny pages',
    in: 'registerPage',
    find: '$LISTED.length < $LIMIT ? undefined : $LISTED.at(-1)?.name',
    replace: '$LISTED.length <= $LIMIT ? undefined : $LISTED.at(-1)?.name',
  },
  'a resync that is made once and never again': {
    shown_by: 'tiny pages',
    in: 'publishOpenTasks',
    find: '!$LAST || $IS_OLDER_THAN($LAST.created_at, $CONFIG.audit_s - 30, $NOW)',
    replace: '!$LAST',
  },
  'a task that is given up after its first failure': {
    shown_by: 'refused pages',
    in: 'stepOrWait',
    find: '{waits: message}',
    replace: '{result: message}',
  },
  'a run that continues without an operator after its document was lost': {
    shown_by: 'lost database',
    in: 'ensureRun',
    find: "$IS_LOST ? 'paused' : $FROZEN ? 'active' : 'failed'",
    replace: "$FROZEN ? 'active' : 'failed'",
  },
  'a pause that the next tick ends': {
    shown_by: 'busy operators',
    in: 'summarizeRun',
    find: "$RUN.status === 'paused' ? 'paused' : 'active'",
    replace: "'active'",
  },
  'a scale message, outdated by half, that sets all of its fields': {
    shown_by: 'busy operators',
    in: 'sortSettings',
    find: '$SETTINGS.filter(([$KEY]) => current.includes($KEY))',
    replace: '$SETTINGS',
  },
  'a stop that a later message outdates': {
    shown_by: 'busy operators',
    in: 'decideRunAction',
    within:
      "{$$$BEFORE; const $BECOME = ($$$OF) => {if ($ACTION !== 'stop' && $IS_OUTDATED) return $OUTDATED; $$$REST}; $$$AFTER}",
    find: "case 'stop': $$$STEPS",
    replace: "case 'stop': if ($IS_OUTDATED) return $OUTDATED; $$$STEPS",
  },
  'a rejected message that leaves no record': {
    shown_by: 'busy operators',
    in: 'recordRejected',
    find: 'if (!(await $TX.get($PATH))) $RECORD($TX, $PATH, $$$OUTCOME);',
    replace: 'if (await $TX.get($PATH)) $RECORD($TX, $PATH, $$$OUTCOME);',
  },
  'an event that expires within an hour': {
    shown_by: 'old runs',
    in: 'recordEvent',
    find: '$DAYS * 86_400_000',
    replace: '$DAYS * 86_400',
  },
  'a command that comes before the first event of its run and is rejected': {
    shown_by: 'busy operators',
    in: 'ensureKnownRun',
    find: 'if (stream) $ENSURE',
    replace: 'if (!stream) $ENSURE',
  },
  'a job whose event was lost and that no tick takes up': {
    shown_by: 'unreliable messages',
    in: 'tick',
    find: "await $FAILURES.$ISOLATE('schedule pending jobs', $WORK);",
  },
  'a job of a dead worker that never waits again': {
    shown_by: 'many jobs',
    in: 'endIncarnation',
    find: 'if ($WORK?.job && !$IS_ENDED) {$$$END}',
  },
  'a job that ends its last machine and fails without an attempt': {
    shown_by: 'many jobs',
    in: 'withAttempt',
    find: 'attempts: [...$JOB.attempts, $ATTEMPT].slice(-$MOST)',
    replace: 'attempts: $JOB.attempts.length > 3 ? $JOB.attempts : [...$JOB.attempts, $ATTEMPT]',
  },
  'a document that is overwritten though no release understands it': {
    shown_by: 'left alone',
    edits: [{in: 'recordsOf', find: 'if ($ALONE.get($TX)?.has($PATH)) return;', replace: ''}],
  },
  'a task that begins again at the page where it ended': {
    shown_by: 'tiny pages',
    in: 'open',
    within: "{...$STORED, ...{task, run, status: 'open', cursor: '', $$$OTHERS}, $$$TIMES}",
    find: "cursor: ''",
    replace: "cursor: $STORED?.cursor ?? ''",
  },
  'a run whose streams expire on the day of its end': {
    shown_by: 'aged runs',
    in: 'expireSome',
    find: '!$IS_OLDER_THAN($RUN.updated_at, $DAYS * 86_400, $NOW)',
    replace: '!$IS_OLDER_THAN($RUN.updated_at, 60, $NOW)',
  },
  'an expired run whose streams a resync registers': {
    shown_by: 'old runs',
    in: 'resyncRun',
    find: "$PARENT?.status === 'stopped' || $PARENT?.stopped_at || $PARENT?.expired_at",
    replace: "$PARENT?.status === 'stopped' || $PARENT?.stopped_at",
  },
  'a notification that its receiver refuses once and that is not sent again': {
    shown_by: 'receiver',
    in: 'afterFailure',
    find: '$IS_LOST ? null : $ISO($NOW + $WAIT_S * 1000)',
    replace: 'null',
  },
  'a stop that is not kept in the bucket': {
    shown_by: 'busy operators',
    in: 'stop',
    find: "if ((await $GET($STORE, $RUN))?.status === 'stopped') $COPY;",
  },
  'a rebuild of a run that was stopped and is expired': {
    shown_by: 'old runs',
    edits: [
      {
        in: 'rebuildRun',
        find: "if ($PARENT.expired_at !== null && $PARENT.status === 'stopped') return $REFUSED;",
      },
      {
        in: 'isClosed',
        find: '$BEFORE !== undefined || $IS_LATE || $EXPIRED_AT !== null',
        replace: '$BEFORE !== undefined || $IS_LATE',
      },
    ],
  },
  'a notification that is lost within minutes': {
    shown_by: 'receiver',
    in: 'afterFailure',
    find: '$NOW - $MS_OF($NOTICE.at) > $MOST * 1000',
    replace: '$NOW - $MS_OF($NOTICE.at) > $MOST',
  },
};
