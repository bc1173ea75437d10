/** Mistakes that charge a stream, a job, a worker or a zone for the fault of another, or for none. */
import type {Mistakes} from '../planting/anchors.ts';

export const BLAME: Mistakes = {
  'a stream that is charged for the preemption of its worker': {
    shown_by: 'small budgets',
    in: 'freeFromDead',
    find: "$DEATH?.kind === 'silent' || $DEATH?.kind === 'hung'",
    replace: "$DEATH?.kind === 'silent' || $DEATH?.kind === 'taken'",
  },
  'a stream that is charged for a host without chips': {
    shown_by: 'bad machines',
    in: 'isBadHost',
    find: '$LIST.some($WORDS => $REASON.includes($WORDS))',
    replace: '$LIST.some($WORDS => $REASON.startsWith($WORDS))',
  },
  'a fault that a stored shard does not clear': {
    shown_by: 'bad machines',
    in: 'withProgress',
    find: 'faults: 0',
  },
  'a lease on a generation that was overwritten': {
    shown_by: 'overwrites',
    in: 'registerNewest',
    find: '$PRESENT && $PRESENT.generation !== $GENERATION',
    replace: '$PRESENT && $PRESENT.generation === $GENERATION',
  },
  'a zone that loses a node when an operator recreates one': {
    shown_by: 'busy operators',
    in: 'changeOf',
    find: "$DEATH === undefined || $DEATH.kind === 'asked' || $HAS_ENDED",
    replace: '$DEATH === undefined || $HAS_ENDED',
  },
  'a preempted boot that counts as failed': {
    shown_by: 'preemptions',
    in: 'isFailedBoot',
    find: "$KIND === 'unheard' || $KIND === 'boot'",
    replace: "$KIND === 'unheard' || $KIND === 'boot' || $KIND === 'taken'",
  },
  'a refusal that costs an incarnation': {
    shown_by: 'scarce zones',
    in: 'toCreating',
    find: '$REFUSED ? $INCARNATION : $INCARNATION + 1',
    replace: '$INCARNATION + 1',
  },
  'a refusal that counts as a lost node': {
    shown_by: 'scarce zones',
    in: 'changeOf',
    find: "if ($DEATH?.refusal) return 'refused';",
    replace: "if ($DEATH?.refusal) return 'lost';",
  },
  'a quota error of the queue that counts as a stock-out': {
    shown_by: 'scarce zones',
    in: 'faultOfQueue',
    find: "refusal: $ERROR?.kind ?? 'no-capacity'",
    replace: "refusal: 'no-capacity'",
  },
  'a worker that one list leaves out and that ends': {
    in: 'observe',
    find: "$IS_EXPECTED ? {kind: 'missing', listed_at: $LISTED_AT} : {kind: 'absent'}",
    replace: "{kind: 'absent'}",
  },
  'a node of another owner that is deleted': {
    shown_by: 'strays',
    in: 'isManaged',
    find: '[$LABELS, $QUEUED?.labels ?? $LABELS].every($IS_OURS)',
    replace: '[$LABELS, $QUEUED?.labels ?? $LABELS].every(Boolean)',
  },
  'a job that is charged for the preemption of its worker': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: "case 'drained': return $SCHEDULE_JOB($ENDED, $NOW);",
    replace: "case 'drained': return $SCHEDULE_JOB({...$ENDED, failures: $ENDED.failures + 1}, $NOW);",
  },
  'a preempted worker that counts as a machine of its job': {
    shown_by: 'preemptions',
    in: 'endByDeath',
    find: "$IS_MACHINE_DEATH($DEATH) ? $FAILED('machine', $ERROR) : $OTHER",
    replace: "$IS_MACHINE_DEATH($DEATH) || $DEATH.kind === 'taken' ? $FAILED('machine', $ERROR) : $OTHER",
  },
  'a model that fails every stream and is tried three times': {
    shown_by: 'broken model',
    in: 'isCertain',
    find: '$RUN.total_shards === 0 && $SHARDS === 0',
    replace: '$RUN.total_shards > 0 && $SHARDS === 0',
  },
  'a hub that costs a machine': {
    shown_by: 'bad machines',
    in: 'workerAfter',
    find: "$FAILURE?.kind === 'infrastructure'",
    replace: "$FAILURE?.kind !== 'stream'",
  },
  'an own failure that costs a job no retry': {
    shown_by: 'many jobs',
    in: 'endAttempt',
    find: '$JOB.failures + 1',
    replace: '$JOB.failures',
  },
};
