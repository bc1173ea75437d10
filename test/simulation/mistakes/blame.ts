/** Mistakes that charge a stream, a worker or a zone for the fault of another, or for none. */
import type {Mistake} from './mistake.ts';

export const BLAME: Mistake[] = [
  {
    name: 'a stream that is charged for the preemption of its worker',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: "death?.kind === 'silent' || death?.kind === 'hung'",
        replace: "death?.kind === 'silent' || death?.kind === 'taken'",
      },
    ],
  },
  {
    name: 'a stream that is charged for a host without chips',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/provider-states.ts',
        find: 'reason.includes(words)',
        replace: 'reason.startsWith(words)',
      },
    ],
  },
  {
    name: 'a silent worker that charges no stream',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'stream.total_shards > (worker.suspect?.total_shards ?? 0)',
        replace: 'stream.total_shards >= (worker.suspect?.total_shards ?? 0)',
      },
    ],
  },
  {
    name: 'a suspect that its worker document does not keep',
    class: 'blame',
    edits: [
      {
        file: 'shared/control-plane/streams/revoke-leases.ts',
        find: '{...worker, suspect}, now, parent',
        replace: 'worker, now, parent',
      },
    ],
  },
  {
    name: 'a suspect that stays after its worker has spoken',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/heartbeat.ts',
        find: 'suspect: worker.fault === null ? null : worker.suspect,',
        replace: 'suspect: worker.suspect,',
      },
    ],
  },
  {
    name: 'a fault that a stored shard does not clear',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/stream/stream.ts',
        find: '    faults: 0,\n    ...(progress.finished',
        replace: '    ...(progress.finished',
      },
    ],
  },
  {
    name: 'a retry that keeps the faults of its stream',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/commands.ts',
        find: '    faults: 0,\n',
        replace: '',
      },
    ],
  },
  {
    name: 'a stream that fails one machine too late',
    class: 'blame',
    edits: [
      {file: 'shared/domain/stream/lease.ts', find: 'faults >= MAX_FAULTS', replace: 'faults > MAX_FAULTS'},
    ],
  },
  {
    name: 'a stream that fails one failure too late',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'failures >= MAX_FAILURES',
        replace: 'failures > MAX_FAILURES',
      },
    ],
  },
  {
    name: 'a worker that is replaced for a failure of its stream',
    class: 'blame',
    edits: [
      {
        file: 'shared/control-plane/streams/release-stream.ts',
        find: "const fault = kind === 'infrastructure' && reason",
        replace: 'const fault = reason',
      },
    ],
  },
  {
    name: 'a lease on a generation that was overwritten',
    class: 'blame',
    edits: [
      {
        file: 'shared/control-plane/streams/grant-lease.ts',
        find: 'present && present.generation !== generation',
        replace: 'present && present.generation === generation',
      },
    ],
  },
  {
    name: 'a zone that loses a node when an operator recreates one',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/fleet/zone-changes.ts',
        find: "death === undefined || death.kind === 'asked' ||",
        replace: 'death === undefined ||',
      },
    ],
  },
  {
    name: 'a preempted boot that counts as unheard',
    class: 'blame',
    edits: [
      {
        file: 'shared/control-plane/workers/decide-slots.ts',
        find: "if (death?.kind === 'unheard') countUnheard",
        replace: "if (death?.kind === 'unheard' || death?.kind === 'taken') countUnheard",
      },
    ],
  },
  {
    name: 'a quota error of the queue that counts as a stock-out',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/liveness.ts',
        find: "refusal: error?.kind ?? 'no-capacity'",
        replace: "refusal: 'no-capacity'",
      },
    ],
  },
  {
    name: 'a worker that one list leaves out and that ends',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/nodes.ts',
        find: "return isExpected ? {kind: 'missing', listed_at: iso(nodes.at_ms)} : {kind: 'absent'};",
        replace:
          "return isExpected && nodes.at_ms < 0 ? {kind: 'missing', listed_at: iso(nodes.at_ms)} : {kind: 'absent'};",
      },
    ],
  },
  {
    name: 'a node that Cloud TPU was asked about without an answer and that counts as absent',
    class: 'blame',
    edits: [
      {
        file: 'shared/control-plane/workers/list-nodes.ts',
        find: '    } catch (error) {\n',
        replace: '    } catch (error) {\n      absent.add(name);\n',
      },
    ],
  },
  {
    name: 'a silence that counts while worker-api is away',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/served-time.ts',
        find: 'if (proof_ms - last_ms <= PROOF_S * 1000) return',
        replace: 'if (proof_ms - last_ms <= PROOF_S * 10_000) return',
      },
    ],
  },
  {
    name: 'a brake whose share is one worker too large',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/fleet/silence-brake.ts',
        find: 'if (brake.replaced < shareOf(heard))',
        replace: 'if (brake.replaced <= shareOf(heard))',
      },
    ],
  },
  {
    name: 'many orphans that go at once',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/fleet/orphans.ts',
        find: 'orphans > shareOf(nodes)',
        replace: 'orphans > nodes',
      },
    ],
  },
  {
    name: 'a worker that is not needed any more and is deleted in the middle of a shard',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/lifecycle.ts',
        find: "if (wanted === 'unwanted' && worker.phase === 'working' && worker.work !== null)",
        replace: "if (wanted === 'unwanted' && worker.phase === 'working' && worker.work === null)",
      },
    ],
  },
  {
    name: 'a node of another owner that is deleted',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/worker/nodes.ts',
        find: 'every(isOurs)',
        replace: 'every(given => given !== undefined)',
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
  {
    name: 'machine deaths that a stored shard does not reset',
    class: 'blame',
    edits: [
      {
        file: 'shared/domain/fleet/breakers.ts',
        find: 'machine_deaths_shards > run.machine_deaths_shards ? 1 :',
        replace: 'machine_deaths_shards < run.machine_deaths_shards ? 1 :',
      },
    ],
  },
];
