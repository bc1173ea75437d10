/** Mistakes that count a sample or a cost twice, or give two workers one right. */
import type {Mistakes} from '../planting/anchors.ts';

export const DOUBLE: Mistakes = {
  'a shard that is seen twice and counts twice': {
    shown_by: 'unreliable messages',
    edits: [
      {in: 'foldShards', find: '$SHARD.shard <= $FROM.total_shards', replace: '$SHARD.shard < 1'},
      {
        in: 'foldShards',
        find: '$MISFIT_AFTER($PROGRESS, $LAST, $SHARD) ?? $SUM_BEYOND_BOUNDS($NEXT)',
        replace: 'undefined',
      },
      {in: 'countListed', find: '$KNOWN.total_shards + 1', replace: 'Math.max(1, $KNOWN.total_shards)'},
    ],
  },
  'a grant that repeats an epoch': {
    in: 'grantLease',
    find: '$STREAM.epoch + 1',
    replace: 'Math.max(1, $STREAM.epoch)',
  },
  'a heartbeat under an earlier epoch that is told to continue': {
    shown_by: 'hurried people',
    in: 'saysItHas',
    find: 'return $IS_OF_STREAM && $WORKER.epoch === $WORK.epoch;',
    replace: 'return $IS_OF_STREAM;',
  },
  'a lease that was granted since the snapshot and is revoked as orphaned': {
    shown_by: 'tiny pages',
    in: 'revokeOrphaned',
    find: '!$CURRENT?.lease || (await $HOLDER_OF($$$OF))',
    replace: '!$CURRENT?.lease',
  },
  'a stream that was overwritten and whose worker keeps its work': {
    shown_by: 'late overwrites',
    in: 'registerStream',
    find: '$NEXT !== $BEFORE && $NEXT?.lease === null',
    replace: '$NEXT !== $BEFORE && $NEXT && $NEXT.lease !== null',
  },
  'a stream that is made again with epoch 0': {
    shown_by: 'lost database',
    in: 'registerStream',
    find: 'epoch: $STORED?.epoch ?? 0',
    replace: 'epoch: 0',
  },
  'a control message that comes twice and is done twice': {
    shown_by: 'unreliable messages',
    in: 'handleControlMessage',
    find: "if ($BEFORE) return {outcome: $OUTCOME, reason: 'done before'};",
    replace: "if ($BEFORE?.outcome === 'rejected') return {outcome: $OUTCOME, reason: 'done before'};",
  },
  'an incarnation that repeats its number': {
    shown_by: 'many jobs',
    in: 'toCreating',
    find: '$REFUSED ? $INCARNATION : $INCARNATION + 1',
    replace: 'Math.max(1, $INCARNATION)',
  },
  'an incarnation that repeats the number of an orphan': {
    shown_by: 'lost database',
    in: 'outgrow',
    find: 'Math.max($WORKER.incarnation, ...$INCARNATIONS)',
    replace: '$WORKER.incarnation',
  },
  'a time that every tick bills again': {
    in: 'accrue',
    find: 'costs_at: $UNTIL',
    replace: 'costs_at: worker.costs_at ?? $UNTIL',
  },
  'a request id that two incarnations share': {
    shown_by: 'many jobs',
    in: 'queueOf',
    find: '$HASH.update($LIFE)',
    replace: '$HASH.update(name)',
  },
  'a deleted job that is made again': {
    shown_by: 'hurried people',
    in: 'scheduleNewJob',
    find: 'const data = await $TX.get($PATH);',
    replace: 'const data = (await $TX.get($PATH)) ?? first;',
  },
  'a grant of a job that repeats the epoch': {
    shown_by: 'many jobs',
    in: 'grantJob',
    find: '$JOB.epoch + 1',
    replace: 'Math.max(1, $JOB.epoch)',
  },
  'an end of a job that is accepted under an earlier epoch': {
    shown_by: 'hurried people',
    in: 'holds',
    find: '$IS_LEASED_TO($WORK, $CLAIM) && $WORK.lease?.epoch === $CLAIM.epoch',
    replace: '$IS_LEASED_TO($WORK, $CLAIM)',
  },
  'an end of a job that is accepted from a worker that lost it': {
    shown_by: 'hurried people',
    in: 'holds',
    find: '$IS_LEASED_TO($WORK, $CLAIM) && $WORK.lease?.epoch === $CLAIM.epoch',
    replace: '$WORK.lease !== null && $WORK.lease.epoch >= $CLAIM.epoch',
  },
  'a stream that is leased to a worker of another pool': {
    shown_by: 'orders',
    in: 'readActive',
    find: "$STORE.query('runs', {where: [$ACTIVE, $OF_POOL]})",
    replace: "$STORE.query('runs', {where: [$ACTIVE]})",
  },
  'a job that is leased to a worker of another pool': {
    shown_by: 'orders',
    edits: [
      {
        in: 'readFirst',
        find: 'where: $QUEUE_OF($POOL)',
        replace: 'where: $QUEUE_OF(config.pool.pool || $POOL)',
      },
      {
        in: 'decideJobGrant',
        find: "!$JOB || !($IS_OWN || $JOB.status === 'scheduled') || $JOB.pool !== $WORKER.pool",
        replace: "!$JOB || !($IS_OWN || $JOB.status === 'scheduled')",
      },
    ],
  },
  'a notification for every write of a run that has ended': {
    shown_by: 'receiver',
    in: 'recordsOf',
    find: 'newsOf($BEFORE, $PARSED)',
    replace: 'newsOf(undefined, $PARSED)',
  },
  'a task that two deliveries work on at once': {
    in: 'claimTask',
    find: 'if ($FOUND.busy_until_at !== null && $MS_OF($FOUND.busy_until_at) > $NOW) return undefined;',
  },
  'a tick that decides about a slot from its first read': {
    in: 'reconcileSlots',
    find: 'readSlot(turn, slot)',
    replace: 'slot.seen ?? readSlot(turn, slot)',
  },
};
