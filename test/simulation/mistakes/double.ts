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
    name: 'a release under an earlier epoch that ends the present lease',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'if (!holds(stream, claim)) return undefined;',
        replace: 'if (!isLeasedTo(stream, claim)) return undefined;',
      },
    ],
  },
  {
    name: 'a heartbeat under an earlier epoch that is told to continue',
    class: 'double',
    edits: [{file: 'shared/domain/stream/lease.ts', find: ' && worker.epoch === work.epoch', replace: ''}],
  },
  {
    name: 'a heartbeat of an earlier incarnation that is heard',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/worker-answers.ts',
        find: '    worker.incarnation === request.incarnation &&\n',
        replace: '',
      },
    ],
  },
  {
    name: 'a grant that does not compare the incarnation again',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/grant-lease.ts',
        find: ' || worker.incarnation !== request.incarnation)',
        replace: ')',
      },
    ],
  },
  {
    name: 'a late request that gets a second stream for its worker',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/grant-lease.ts',
        find: 'if (worker.work !== work && (await workOf(deps.log, tx, worker))) return undefined;',
        replace: '',
      },
    ],
  },
  {
    name: 'an expired lease that was claimed since the plan and is revoked',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/streams/revoke-leases.ts',
        find: 'if (!worker || !hasRunOut(worker, lease_s, served)) return undefined;',
        replace: 'if (!worker?.work) return undefined;',
      },
    ],
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
    name: 'a cancelled stream whose worker keeps its work',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/handlers/commands/stream-commands.ts',
        find: "if (decision.kind === 'applied' && decision.next.lease === null)",
        replace: "if (decision.kind === 'applied' && decision.next.lease !== null)",
      },
    ],
  },
  {
    name: 'a rebuild that lowers an epoch',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/stream/stream.ts',
        find: 'epoch: Math.max(stream.epoch, epoch),',
        replace: 'epoch,',
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
    name: 'a shard under an epoch above every grant that counts',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/stream/checkpoint.ts',
        find: 'shard.epoch > origin.epoch',
        replace: 'shard.epoch > 1e9',
      },
    ],
  },
  {
    name: 'a control message that comes twice and is done twice',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/handlers/control-message.ts',
        find: 'if (before) return',
        replace: 'if (before?.outcome === "rejected") return',
      },
    ],
  },
  {
    name: 'an object event that comes twice and revives its stream twice',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/stream/stream.ts',
        find: 'if (BigInt(content.generation) <= BigInt(stream.generation))',
        replace: 'if (BigInt(content.generation) < BigInt(stream.generation))',
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
    name: 'a node whose zone does not answer and whose slot is filled again',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/worker/lifecycle.ts',
        find: "if (observation.kind === 'absent') {\n    const gone",
        replace: "if (observation.kind !== 'found') {\n    const gone",
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
    name: 'an incarnation that is billed again when its node is seen again',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/worker/observation.ts',
        find: "before.phase === 'gone' ? {...seen, ...UNBILLED} : seen",
        replace: 'seen',
      },
    ],
  },
  {
    name: 'a list that is older than the phase of its worker and counts',
    class: 'double',
    edits: [
      {
        file: 'shared/domain/worker/nodes.ts',
        find: 'if (nodes.at_ms < Math.max(',
        replace: 'if (nodes.at_ms < 0 * Math.max(',
      },
    ],
  },
  {
    name: 'a rebuild that goes on while a zone does not list its orphans',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/workers/delete-orphans.ts',
        find: 'if (silent.length > 0)',
        replace: 'if (silent.length > 1e9)',
      },
    ],
  },
];
