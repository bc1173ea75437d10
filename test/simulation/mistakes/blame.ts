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
    name: 'a lease on a generation that was overwritten',
    class: 'blame',
    edits: [
      {
        file: 'shared/control-plane/worker-api/grant-stream.ts',
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
        file: 'shared/domain/zone/zone-changes.ts',
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
];
