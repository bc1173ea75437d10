/** Mistakes that charge a stream, a job, a worker or a zone for the fault of another, or for none. */
import type {Mistakes} from '../planting/anchors.ts';

export const BLAME: Mistakes = {
  'a stream that is charged for the preemption of its worker': {
    in: 'freeFromDead',
    find: "$death?.kind === 'silent' || $death?.kind === 'hung'",
    replace: "$death?.kind === 'silent' || $death?.kind === 'taken'",
  },
  'a stream that is charged for a host without chips': {
    in: 'isBadHost',
    within: 'return $list.some($words => $reason.includes($words));',
    find: '$list.some($words => $reason.includes($words))',
    replace: '$list.some($words => $reason.startsWith($words))',
  },
  'a silent worker that charges no stream': {
    in: 'chargeSuspect',
    find: '$stream.total_shards > ($worker.suspect?.total_shards ?? 0)',
    replace: '$stream.total_shards >= ($worker.suspect?.total_shards ?? 0)',
  },
  'a fault that a stored shard does not clear': {
    in: 'withProgress',
    within: '{...$stream, ...$progress, $$fields}',
    find: 'faults: 0',
  },
  'a lease on a generation that was overwritten': {
    in: 'registerNewest',
    find: '$present && $present.generation !== $generation',
    replace: '$present && $present.generation === $generation',
  },
  'a zone that loses a node when an operator recreates one': {
    in: 'changeOf',
    find: "$death === undefined || $death.kind === 'asked' || $hasEnded",
    replace: '$death === undefined || $hasEnded',
  },
  'a preempted boot that counts as failed': {
    in: 'isFailedBoot',
    find: "$kind === 'unheard' || $kind === 'boot'",
    replace: "$kind === 'unheard' || $kind === 'boot' || $kind === 'taken'",
  },
  'a refusal that costs an incarnation': {
    in: 'toCreating',
    find: '$refused ? $incarnation : $incarnation + 1',
    replace: '$incarnation + 1',
  },
  'a refusal that counts as a lost node': {
    in: 'changeOf',
    find: "if ($death?.refusal) return 'refused';",
    replace: "if ($death?.refusal) return 'lost';",
  },
  'a quota error of the queue that counts as a stock-out': {
    in: 'faultOfQueue',
    find: "refusal: $error?.kind ?? 'no-capacity'",
    replace: "refusal: 'no-capacity'",
  },
  'a worker that one list leaves out and that ends': {
    in: 'observe',
    find: "$isExpected ? {kind: 'missing', listed_at: $listed_at} : {kind: 'absent'}",
    replace: "{kind: 'absent'}",
  },
  'a node of another owner that is deleted': {
    in: 'isManaged',
    find: '[$labels, $queued?.labels ?? $labels].every($isOurs)',
    replace: '[$labels, $queued?.labels ?? $labels].every(Boolean)',
  },
  'a job that is charged for the preemption of its worker': {
    in: 'endAttempt',
    find: "case 'drained': return $scheduleJob($ended, $now);",
    replace: "case 'drained': return $scheduleJob({...$ended, failures: $ended.failures + 1}, $now);",
  },
  'a preempted worker that counts as a machine of its job': {
    in: 'endByDeath',
    find: "$isMachineDeath($death) ? $failed('machine', $error) : $other",
    replace: "$isMachineDeath($death) || $death.kind === 'taken' ? $failed('machine', $error) : $other",
  },
  'a model that fails every stream and is tried three times': {
    in: 'isCertain',
    find: '$run.total_shards === 0 && $shards === 0',
    replace: '$run.total_shards > 0 && $shards === 0',
  },
  'a hub that costs a machine': {
    in: 'workerAfter',
    find: "$failure?.kind === 'infrastructure'",
    replace: "$failure?.kind !== 'stream'",
  },
  'an own failure that costs a job no retry': {
    in: 'endAttempt',
    within: "case 'failed': {$$steps}",
    find: '$job.failures + 1',
    replace: '$job.failures',
  },
};
