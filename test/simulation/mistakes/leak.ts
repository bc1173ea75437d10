/** Mistakes that leave a TPU, a stray, a document or a task behind. */
import type {Mistakes} from '../planting/anchors.ts';

export const LEAK: Mistakes = {
  'a stray that is deleted only while it is being deleted': {
    shown_by: 'lost database',
    in: 'planTick',
    find: '$NODES.$STRAYS.filter($STRAY => !$IS_GOING($STRAY))',
    replace: '$NODES.$STRAYS.filter($STRAY => $IS_GOING($STRAY))',
  },
  'a plan that passes over nodes without a document': {
    in: 'planTick',
    find: 'new Set([...$WORKERS.keys(), ...$FLEET.$WANTED, ...$MANAGED])',
    replace: 'new Set([...$WORKERS.keys(), ...$FLEET.$WANTED])',
  },
  'many orphans that wait beyond their hour': {
    in: 'decideOrphans',
    find: '$MARK !== null && !$IS_OLDER_THAN($MARK.since_at, $WAIT, $NOW) && $IS_PAID_FOR',
    replace: '$MARK !== null && $IS_PAID_FOR',
  },
  'a kept TPU that stays for ever': {
    shown_by: 'busy operators',
    in: 'keptBy',
    find: '!$KEEP || $MS_OF($KEEP.until_at) <= $NOW',
    replace: '!$KEEP',
  },
  'a late message by which TPUs are kept for longer': {
    shown_by: 'busy operators',
    in: 'decideKeep',
    find: 'const until_ms = $PUBLISHED + $MINUTES;',
    replace: 'const until_ms = now + $MINUTES;',
  },
  'a delete without effect that is not requested again': {
    shown_by: 'slow providers',
    in: 'askAgain',
    find: 'actions: [$ASK($KIND, $WORKER)]',
    replace: "actions: $KIND === 'create' ? [$ASK($KIND, $WORKER)] : []",
  },
  'a query of living workers that lacks those being deleted': {
    in: 'LIVING',
    find: "['creating', 'booting', 'idle', 'working', 'draining', 'deleting']",
    replace: "['creating', 'booting', 'idle', 'working', 'draining']",
  },
  'a deleted node that must be unheard for a lease before it counts as gone': {
    shown_by: 'cut networks',
    in: 'missingIn',
    find: "if ($WORKER.phase === 'deleting') return true;",
  },
  'an answer about a missing node that its decision does not use': {
    in: 'reconcileMissing',
    find: '$RECONCILE(deps, others, answered, $FAILURES)',
    replace: '$RECONCILE(deps, others, inputs, $FAILURES)',
  },
  'a worker that reports a broken machine and is kept': {
    shown_by: 'bad machines',
    in: 'causeOfDeath',
    find: 'if ($WORKER.fault !== null) return $SAID_BY($WORKER, $WORKER.fault);',
    replace:
      "if ($WORKER.fault !== null && $WORKER.phase === 'booting') return $SAID_BY($WORKER, $WORKER.fault);",
  },
  'a task that stays locked after its delivery died': {
    in: 'claimTask',
    find: '$FOUND.busy_until_at !== null && $MS_OF($FOUND.busy_until_at) > $NOW',
    replace: '$FOUND.busy_until_at !== null',
  },
  'a rebuild that does not wait for the deletes of orphans': {
    shown_by: 'lost database',
    in: 'deleteOrphans',
    find: 'left: $ORPHANS_LEFT($NODES, $WORKERS)',
    replace: 'left: []',
  },
  'a cancelled job that runs again': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: "$JOB.cancelled_at !== null && $GIVEN.outcome !== 'completed'",
    replace: 'false',
  },
  'a job that keeps its place while it runs': {
    shown_by: 'many jobs',
    in: 'grantJob',
    find: 'queue: null',
  },
  'a job whose lease runs out and that its worker keeps': {
    shown_by: 'cut networks',
    in: 'endExpiredJobs',
    find: '$CLEAR_WORK($TX, $WORKER, ...$OTHERS);',
  },
  'a due job that its worker keeps': {
    shown_by: 'many jobs',
    in: 'endDueJob',
    find: '$CLEAR_WORK($TX, $HOLDER, ...$OTHERS);',
  },
  'an expired run that keeps the documents of its streams': {
    shown_by: 'old runs',
    in: 'deleteStream',
    find: 'if ($SHARDS.length < $MOST) $TX.delete($PATH);',
  },
  'a cancelled stream that its worker keeps': {
    shown_by: 'collisions',
    in: 'onStreams',
    find: "$DECISION.kind === 'applied' && $DECISION.$NEXT.lease === null",
    replace: 'false',
  },
  'an old run that keeps the documents of its streams': {
    shown_by: 'old runs',
    in: 'expireSome',
    find: '$IS_OLDER_THAN($RUN.updated_at, $DAYS.streams * 86_400, $NOW)',
    replace: '$IS_OLDER_THAN($RUN.created_at, $DAYS.streams * 86_400, $NOW)',
  },
};
