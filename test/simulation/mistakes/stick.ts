/** Mistakes after which a run, a stream, a slot, a zone, a task or a tick never goes on. */
import type {Mistake} from './mistake.ts';

export const STICK: Mistake[] = [
  {
    name: 'a tick queue that waits for ever after its first wait',
    class: 'stick',
    edits: [
      {
        file: 'shared/control-plane/tick-queue.ts',
        find: '      this.#isWaiting = false;\n',
        replace: '      this.#isWaiting = this.#begun > before;\n',
      },
    ],
  },
  {
    name: 'a tick that has ended and still counts as running',
    class: 'stick',
    edits: [
      {
        file: 'shared/control-plane/tick-queue.ts',
        find: 'if (this.#running_since_ms === began_ms)',
        replace: 'if (this.#running_since_ms === now)',
      },
    ],
  },
  {
    name: 'a command that wakes no tick',
    class: 'stick',
    edits: [
      {
        file: 'shared/control-plane/events/control-message.ts',
        find: '    await wake(bus);\n',
        replace: '    if (row.after) await wake(bus);\n',
      },
    ],
  },
  {
    name: 'a new stream that wakes no tick',
    class: 'stick',
    edits: [
      {
        file: 'shared/control-plane/events/object-event.ts',
        find: 'return wake(deps.bus);',
        replace: 'return;',
      },
    ],
  },
  {
    name: 'a slot that was refused once and stays blocked',
    class: 'stick',
    edits: [
      {
        file: 'shared/domain/worker/worker.ts',
        find: 'worker.blocked_until_at !== null && !isOlderThan(worker.blocked_until_at, 0, now)',
        replace: 'worker.blocked_until_at !== null',
      },
    ],
  },
  {
    name: 'a recreate flag that is not cleared',
    class: 'stick',
    edits: [
      {file: 'shared/domain/worker/transitions.ts', find: '    recreate: false,\n', replace: ''},
      {file: 'shared/domain/worker/lifecycle.ts', find: '      recreate: false,\n', replace: ''},
    ],
  },
  {
    name: 'a heartbeat that counts as progress',
    class: 'stick',
    edits: [
      {
        file: 'shared/domain/worker/heartbeat.ts',
        find: "'shards_done'] as const",
        replace: "'shards_done', 'claimed_at'] as const",
      },
    ],
  },
  {
    name: 'a slot that asks for the stream of its neighbour',
    class: 'stick',
    edits: [
      {
        file: 'shared/domain/fleet/pool.ts',
        find: 'return number < 0 ? undefined : number + stream_offset;',
        replace: 'return number < 0 ? undefined : number + 1 + stream_offset;',
      },
    ],
  },
  {
    name: 'a run with a low priority that goes first',
    class: 'stick',
    edits: [
      {
        file: 'shared/domain/stream/lease.ts',
        find: 'b.priority - a.priority ||',
        replace: 'a.priority - b.priority ||',
      },
    ],
  },
  {
    name: 'a message that is published before its change is committed',
    class: 'stick',
    edits: [
      {
        file: 'shared/control-plane/workers/decide-slots.ts',
        find: '      actions.push(...turn.actions);\n',
        replace: '      await publishActions(deps.bus, turn.actions);\n',
      },
      {file: 'shared/domain/worker/transitions.ts', find: 'limits.ask_again_s, now)', replace: '1e9, now)'},
    ],
  },
];
