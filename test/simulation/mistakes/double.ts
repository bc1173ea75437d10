/** Mistakes that count a sample or a cost twice, or give two workers one right. */
import type {Mistakes} from '../planting/anchors.ts';

export const DOUBLE: Mistakes = {
  'a shard that is seen twice and counts twice': [
    {
      in: 'foldShards',
      find: '$shard.shard <= $from.total_shards',
      replace: '$shard.shard < 1',
    },
    {
      in: 'foldShards',
      find: '$misfitAfter($progress, $last, $shard) ?? $sumBeyondBounds($next)',
      replace: 'undefined',
    },
    {
      in: 'countListed',
      within: '{start: $start}',
      find: '$known.total_shards + 1',
      replace: 'Math.max(1, $known.total_shards)',
    },
  ],
  'a grant that repeats an epoch': {
    in: 'grantLease',
    within: "{$$epoch; return {...$stream, status: 'in_progress', $$fields};}",
    find: '$stream.epoch + 1',
    replace: 'Math.max(1, $stream.epoch)',
  },
  'a heartbeat under an earlier epoch that is told to continue': {
    in: 'saysItHas',
    find: 'return $isOfStream && $worker.epoch === $work.epoch;',
    replace: 'return $isOfStream;',
  },
  'a lease that was granted since the snapshot and is revoked as orphaned': {
    in: 'revokeOrphaned',
    find: '!$current?.lease || (await $holderOf($$of))',
    replace: '!$current?.lease',
  },
  'a stream that was overwritten and whose worker keeps its work': {
    in: 'registerStream',
    find: '$next !== $before && $next?.lease === null',
    replace: '$next !== $before && $next && $next.lease !== null',
  },
  'a stream that is made again with epoch 0': {
    in: 'registerStream',
    find: 'epoch: $stored?.epoch ?? 0',
    replace: 'epoch: 0',
  },
  'a control message that comes twice and is done twice': {
    in: 'handleControlMessage',
    find: "if ($before) return {outcome: $outcome, reason: 'done before'};",
    replace: "if ($before?.outcome === 'rejected') return {outcome: $outcome, reason: 'done before'};",
  },
  'an incarnation that repeats its number': {
    in: 'toCreating',
    find: '$refused ? $incarnation : $incarnation + 1',
    replace: 'Math.max(1, $incarnation)',
  },
  'an incarnation that repeats the number of an orphan': {
    in: 'outgrow',
    find: 'Math.max($worker.incarnation, ...$incarnations)',
    replace: '$worker.incarnation',
  },
  'a time that every tick bills again': {
    in: 'accrue',
    within: '{...$worker, costs: $costs, costs_at: $until, charged_to: $run}',
    find: 'costs_at: $until',
    replace: 'costs_at: $worker.costs_at ?? $until',
  },
  'a request id that two incarnations share': {
    in: 'queueOf',
    within: 'function $queueOf({name: $name, incarnation: $incarnation, $$others}) {$$body}',
    find: '$hash.update($life)',
    replace: '$hash.update($name)',
  },
  'a deleted job that is made again': {
    in: 'scheduleNewJob',
    within:
      '{const $data = await $tx.get($path); if ($isOld) return false; const $isSame = JSON.stringify($data) === JSON.stringify($known); $$rest}',
    find: 'await $tx.get($path)',
    replace: '(await $tx.get($path)) ?? $known',
  },
  'a grant of a job that repeats the epoch': {
    in: 'grantJob',
    within: "{$$epoch; return {...$job, ...{status: 'running', $$fields}, $$others};}",
    find: '$job.epoch + 1',
    replace: 'Math.max(1, $job.epoch)',
  },
  'an end of a job that is accepted under an earlier epoch': {
    in: 'holds',
    find: '$isLeasedTo($work, $claim) && $work.lease?.epoch === $claim.epoch',
    replace: '$isLeasedTo($work, $claim)',
  },
  'an end of a job that is accepted from a worker that lost it': {
    in: 'holds',
    find: '$isLeasedTo($work, $claim) && $work.lease?.epoch === $claim.epoch',
    replace: '$work.lease !== null && $work.lease.epoch >= $claim.epoch',
  },
  'a stream that is leased to a worker of another pool': {
    in: 'readActive',
    find: "$store.query('runs', {where: [$active, $ofPool]})",
    replace: "$store.query('runs', {where: [$active]})",
  },
  'a job that is leased to a worker of another pool': [
    {
      in: 'readFirst',
      within:
        "{let $alone = 0; const $query = {field: 'queue', where: $queueOf($pool), limit: $limit}; for await (const $page of $pages($store, $config.jobs_collection, $query)) $body; $$rest}",
      find: 'where: $queueOf($pool)',
      replace: 'where: $queueOf($config.pool.pool || $pool)',
    },
    {
      in: 'decideJobGrant',
      find: "!$job || !($isOwn || $job.status === 'scheduled') || $job.pool !== $worker.pool",
      replace: "!$job || !($isOwn || $job.status === 'scheduled')",
    },
  ],
  'a notification for every write of a run that has ended': {
    in: 'recordsOf',
    within: '$newsOf($read.get($tx)?.get($path), $parsed)',
    find: '$read.get($tx)?.get($path)',
    replace: 'undefined',
  },
  'a task that two deliveries work on at once': {
    in: 'claimTask',
    find: 'if ($found.busy_until_at !== null && $msOf($found.busy_until_at) > $now) return undefined;',
  },
};
