/** Known mistakes of systems like this one, each planted into the text of the real modules: the simulation must find them all. */
import {type Edit, loadEdited} from './edits.ts';

export type Mistake = {name: string; edits: Edit[]};

export const MISTAKES: Mistake[] = [
  {
    name: 'a checkpoint that counts past a gap',
    edits: [
      {
        file: 'shared/domain/stream/checkpoint.ts',
        find: 'if (shard.shard !== progress.total_shards + 1 || ungranted) continue;',
        replace: 'if (shard.shard <= progress.total_shards) continue;',
      },
      {
        file: 'shared/domain/stream/checkpoint.ts',
        find: 'if (shard.first_sample !== expected)',
        replace: 'if (shard.first_sample < expected)',
      },
    ],
  },
  {
    name: 'an increment without a marker: a shard that is seen twice counts twice',
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
    name: 'a lease whose epoch does not grow',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'const epoch = stream.epoch + 1;',
        replace: 'const epoch = stream.epoch;',
      },
    ],
  },
  {
    name: 'a lease without an epoch check: an old word renews it or gives it back',
    edits: [
      {file: 'shared/domain/stream/lease.ts', find: ' && stream.lease?.epoch === claim.epoch', replace: ''},
    ],
  },
  {
    name: 'a worker that is believed when it says that a stream is complete',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: "    case 'completed':\n",
        replace: "    case 'completed':\n      return {...free, status: 'completed'};\n",
      },
    ],
  },
  {
    name: 'a beat that is switched off while a zone does not answer',
    edits: [
      {
        file: 'shared/control-plane/workers/provider-snapshot.ts',
        find: 'return unreachable.some(zone => ours.has(zone));',
        replace: 'return false;',
      },
    ],
  },
  {
    name: 'a heartbeat of an earlier life that is heard',
    edits: [
      {
        file: 'shared/control-plane/handlers/worker-request.ts',
        find: '    worker.incarnation === request.incarnation &&\n',
        replace: '',
      },
    ],
  },
  {
    name: 'a release that drops what the next one has written',
    edits: [
      {
        file: 'shared/control-plane/state/documents.ts',
        find: 'const streamDocument: z.ZodType<Stream> = z.looseObject({',
        replace: 'const streamDocument: z.ZodType<Stream> = z.object({',
      },
    ],
  },
  {
    name: 'a lease that is taken from whoever has it',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'isServedFor(served, worker.claimed_at ?? worker.phase_since_at, lease_s)',
        replace: '(lease_s > 0 && isServedFor(served, worker.claimed_at, 0))',
      },
    ],
  },
  {
    name: 'a machine that falls silent at work, and nobody counts it',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'return isSilent ? {work, epoch, total_shards} : null;',
        replace: 'return null;',
      },
    ],
  },
  {
    name: 'silence that counts while worker-api is away',
    edits: [
      {
        file: 'shared/domain/worker/served-time.ts',
        find: 'if (proof_ms - last_ms <= PROOF_S * 1000) return',
        replace: 'if (proof_ms - last_ms <= PROOF_S * 1_000_000) return',
      },
    ],
  },
  {
    name: 'a zone whose silent workers all end at once',
    edits: [
      {
        file: 'shared/domain/fleet/silence-brake.ts',
        find: 'if (brake.replaced < shareOf(heard))',
        replace: 'if (brake.replaced < 10 * shareOf(heard))',
      },
    ],
  },
  {
    name: 'a worker that ends because one list leaves it out',
    edits: [
      {
        file: 'shared/control-plane/workers/provider-snapshot.ts',
        find: "  return isExpected ? {kind: 'missing', listed_at: iso(look.at_ms)} : {kind: 'absent'};",
        replace:
          "  return isExpected && look.at_ms < 0 ? {kind: 'missing', listed_at: iso(look.at_ms)} : {kind: 'absent'};",
      },
    ],
  },
  {
    name: 'a lease that ends and its worker is not told',
    edits: [
      {
        file: 'shared/control-plane/state/lease-documents.ts',
        find: 'if (holder) workerRecords.set(tx, withoutWork(holder));',
        replace: 'if (holder && tx === undefined) workerRecords.set(tx, withoutWork(holder));',
      },
    ],
  },
  {
    name: 'a node that is made again before it was deleted',
    edits: [
      {
        file: 'shared/domain/worker/transitions.ts',
        find: "  const deleting = enter(worker, 'deleting', now, {",
        replace: "  const deleting = enter(worker, 'gone', now, {",
      },
    ],
  },
  {
    name: 'a list that is taken as complete when a zone did not answer',
    edits: [
      {
        file: 'shared/control-plane/workers/provider-snapshot.ts',
        find: "if (look.unreachable.includes(worker.zone)) return {kind: 'unknown'};",
        replace: "if (look.at_ms < 0) return {kind: 'unknown'};",
      },
      {
        file: 'shared/control-plane/workers/provider-snapshot.ts',
        find: 'const tpu = await deps.tpus.get(name, zone);',
        replace: 'const tpu = await deps.tpus.get(name, zone).catch(() => undefined);',
      },
    ],
  },
  {
    name: 'a message that is published before its change is committed',
    edits: [
      {
        file: 'shared/control-plane/workers/reconcile-workers.ts',
        find: '      actions.push(...turn.actions);\n',
        replace: '      await publishActions(deps, turn.actions);\n',
      },
      {
        file: 'shared/domain/worker/transitions.ts',
        find: 'limits.ask_again_s, now)',
        replace: '1e9, now)',
      },
    ],
  },
  {
    name: 'an incarnation that does not grow',
    edits: [
      {
        file: 'shared/domain/worker/transitions.ts',
        find: 'incarnation: worker.incarnation + 1,',
        replace: 'incarnation: Math.max(1, worker.incarnation),',
      },
    ],
  },
  {
    name: 'nodes that no document knows are left alone',
    edits: [
      {file: 'shared/control-plane/workers/plan-fleet.ts', find: ', ...managed(look.tpus)])', replace: '])'},
    ],
  },
  {
    name: 'many nodes that no document knows and that go at once',
    edits: [
      {
        file: 'shared/control-plane/workers/orphans.ts',
        find: 'names.length > shareOf(nodes)',
        replace: 'names.length > 9',
      },
    ],
  },
  {
    name: 'a shard that counts though its epoch was never granted',
    edits: [
      {
        file: 'shared/domain/stream/checkpoint.ts',
        find: 'shard.epoch > origin.epoch',
        replace: 'shard.epoch > 1e9',
      },
    ],
  },
  {
    name: 'a run that goes on by itself after its document was lost',
    edits: [
      {
        file: 'shared/control-plane/streams/register-stream.ts',
        find: "status: isLost ? 'paused' : frozen",
        replace: 'status: frozen',
      },
    ],
  },
  {
    name: 'a control message that is done again when it comes again',
    edits: [
      {
        file: 'shared/control-plane/handlers/control-message.ts',
        find: 'if (before) return',
        replace: 'if (false) return',
      },
    ],
  },
  {
    name: 'an older message that is delivered late and changes what a later one has set',
    edits: [
      {
        file: 'shared/domain/publish-order.ts',
        find: 'last > said_at;',
        replace: "last > said_at && said_at === '';",
      },
    ],
  },
  {
    name: 'an agent that lives and stands still is left alone',
    edits: [
      {file: 'shared/domain/worker/liveness.ts', find: ' ?? standstill(worker, limits, moment)', replace: ''},
      {
        file: 'shared/domain/worker/liveness.ts',
        find: 'function standstill',
        replace: 'export function standstill',
      },
    ],
  },
  {
    name: 'a cap on creates that counts nothing',
    edits: [
      {
        file: 'shared/domain/fleet/placement.ts',
        find: 'limits.creates_per_hour - createsOfLastHour(zone, now).length',
        replace: 'limits.creates_per_hour',
      },
    ],
  },
  {
    name: 'a budget that nobody looks at',
    edits: [
      {file: 'shared/domain/billing/cost.ts', find: 'leaving_usd < budget_usd', replace: 'leaving_usd < 1e9'},
    ],
  },
  {
    name: 'a stream that is blamed for every death of its worker',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: "const isSuspect = death?.kind === 'silent' || death?.kind === 'hung';",
        replace: 'const isSuspect = death !== undefined;',
      },
    ],
  },
  {
    name: 'a retry that keeps what was held against the stream',
    edits: [
      {
        file: 'shared/domain/commands.ts',
        find: '    failures: 0,\n    faults: 0,\n    last_error: null,',
        replace: '    last_error: null,',
      },
    ],
  },
  {
    name: 'a run with a low priority that goes first',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'b.priority - a.priority ||',
        replace: 'a.priority - b.priority ||',
      },
    ],
  },
  {
    name: 'a worker that is not needed any more and is deleted in the midst of a shard',
    edits: [
      {
        file: 'shared/domain/worker/lifecycle.ts',
        find: "const draining = enter(worker, 'draining', now);",
        replace: "return toDeleting(worker, 'it is not needed any more', now);\n    const draining = worker;",
      },
    ],
  },
  {
    name: 'a machine that says that it cannot work, and is kept',
    edits: [
      {
        file: 'shared/domain/worker/liveness.ts',
        find: 'if (worker.fault !== null)',
        replace: "if (worker.fault === '')",
      },
    ],
  },
  {
    name: 'a lost event that nobody looks for',
    edits: [
      {
        file: 'shared/control-plane/handlers/tick.ts',
        find: "  await failures.isolate('take missed streams', () => takeMissedStreams(deps, began_ms + TAKING_MS));\n",
        replace: '',
      },
    ],
  },
  {
    name: 'an instance that does not notice that the database was lost under it',
    edits: [
      {
        file: 'shared/control-plane/streams/resync-streams.ts',
        find: 'if (isAnyGone || isAnyLeft) ',
        replace: 'if (isAnyLeft) ',
      },
    ],
  },
  {
    name: 'a pause that the next look ends',
    edits: [
      {
        file: 'shared/domain/run/run.ts',
        find: "next.status = run.status === 'paused' ? 'paused' : 'active';",
        replace: "next.status = 'active';",
      },
    ],
  },
  {
    name: 'a message that is forgotten with the database',
    edits: [
      {
        file: 'shared/control-plane/handlers/control-message.ts',
        find: "    if (outcome === 'applied') await keepOrders(deps, message);\n",
        replace: '',
      },
    ],
  },
  {
    name: 'a life that costs half its price',
    edits: [
      {
        file: 'shared/domain/billing/cost.ts',
        find: 'const HOUR_MS = 3_600_000;',
        replace: 'const HOUR_MS = 7_200_000;',
      },
    ],
  },
  {
    name: 'a pool that is not billed',
    edits: [
      {
        file: 'shared/control-plane/workers/budget.ts',
        find: 'spent_usd: pool.spent_usd + total',
        replace: 'spent_usd: pool.spent_usd',
      },
    ],
  },
  {
    name: 'a zone that is asked again as soon as it has taken its nodes back',
    edits: [
      {
        file: 'shared/domain/fleet/placement.ts',
        find: "if (rate === 'full') return Math.max(0, left);",
        replace: 'if (rate) return Math.max(0, left);',
      },
    ],
  },
  {
    name: 'a zone without quota that is asked again at once',
    edits: [
      {
        file: 'shared/domain/fleet/placement.ts',
        find: "const wait_s = kind === 'quota' ? limits.quota_s : limits.retry_s;",
        replace: "const wait_s = kind === 'quota' ? 0 : limits.retry_s;",
      },
    ],
  },
  {
    name: 'a request that may wait in the queue for a year',
    edits: [
      {
        file: 'shared/domain/fleet/placement.ts',
        find: 'valid_until_at: iso(now + limits.queue_s * 1000)',
        replace: 'valid_until_at: iso(now + 365 * 86_400_000)',
      },
    ],
  },
  {
    name: 'a request id that does not say for which life it is',
    edits: [
      {
        file: 'shared/control-plane/workers/tpu-operations.ts',
        find: "const hash = createHash('sha256').update(",
        replace: "const hash = createHash('sha256').update(name || ",
      },
    ],
  },
  {
    name: 'a sweep that does not look at labels',
    edits: [
      {
        file: 'shared/control-plane/workers/provider-snapshot.ts',
        find: 'every(isOurs)',
        replace: 'every(given => given !== undefined)',
      },
    ],
  },
  {
    name: 'an event that is kept for ever',
    edits: [
      {
        file: 'shared/control-plane/state/event-log.ts',
        find: 'at: iso(now), expire_at: iso(now + KEPT_DAYS * 86_400_000)}',
        replace: 'at: iso(now)}',
      },
    ],
  },
];

/** From here on, these modules are loaded with the mistake. */
export function plant({name, edits}: Mistake): void {
  loadEdited(name, edits);
}
