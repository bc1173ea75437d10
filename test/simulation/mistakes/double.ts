/** Mistakes that count a sample or a cost twice, or give two workers one right. */
import type {Mistake} from './mistake.ts';

export const DOUBLE: Mistake[] = [
  {
    name: 'a shard that is seen twice and counts twice',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/stream/checkpoint.ts',
        find: 'if (shard.shard !== progress.total_shards + 1 || ungranted) continue;',
        replace: 'if (shard.shard > progress.total_shards + 1) continue;',
      },
      {
        file: 'shared/domain/stream/checkpoint.ts',
        find: 'if (misfit)',
        replace: 'if (misfit && shard.shard < 0)',
      },
      {
        file: 'shared/control-plane/streams/advance-checkpoint.ts',
        find: 'known.total_shards + 1',
        replace: 'Math.max(1, known.total_shards)',
      },
    ],
  },
  {
    name: 'a grant that repeats an epoch',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'const epoch = stream.epoch + 1;',
        replace: 'const epoch = Math.max(1, stream.epoch);',
      },
    ],
  },
  {
    name: 'a heartbeat under an earlier epoch that is told to continue',
    class: 'double',
    edits: [{file: 'shared/domain/stream/lease.ts', find: ' && worker.epoch === work.epoch', replace: ''}],
  },
  {
    name: 'a lease that was granted since the snapshot and is revoked as orphaned',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/revoke-leases.ts',
        find: 'if (!current?.lease || (await holderOf(deps.log, tx, current))) return;',
        replace: 'if (!current?.lease) return;',
      },
    ],
  },
  {
    name: 'a stream that was overwritten and whose worker keeps its work',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/register-stream.ts',
        find: 'if (next.lease === null)',
        replace: 'if (next.lease !== null)',
      },
    ],
  },
  {
    name: 'a stream that is made again with epoch 0',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/register-stream.ts',
        find: 'epoch: stored?.epoch ?? 0,',
        replace: 'epoch: 0,',
      },
    ],
  },
  {
    name: 'a control message that comes twice and is done twice',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/events/control-message.ts',
        find: 'if (before) return',
        replace: 'if (before?.outcome === "rejected") return',
      },
    ],
  },
  {
    name: 'an incarnation that repeats its number',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/worker/transitions.ts',
        find: 'incarnation: worker.incarnation + 1,',
        replace: 'incarnation: Math.max(1, worker.incarnation),',
      },
    ],
  },
  {
    name: 'an incarnation that repeats the number of an orphan',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/worker/lifecycle.ts',
        find: 'Math.max(worker.incarnation, ...incarnations)',
        replace: 'worker.incarnation',
      },
    ],
  },
  {
    name: 'a time that every tick bills again',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/billing/cost.ts',
        find: 'costs_at: iso(until), charged_to',
        replace: 'costs_at: worker.costs_at ?? iso(until), charged_to',
      },
    ],
  },
  {
    name: 'a request id that two incarnations share',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/workers/tpu-operations.ts',
        find: 'function queueOf({name, incarnation, phase_since_at, valid',
        replace: 'function queueOf({name, pool: incarnation, zone: phase_since_at, valid',
      },
    ],
  },
];
