/** Mistakes that lose a sample, a stream, a record or an operator's message. */
import type {Mistake} from './mistake.ts';

export const LOSE: Mistake[] = [
  {
    name: 'a checkpoint that counts past a gap',
    class: 'lose',
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
    name: 'a listing of shards that begins one shard too late',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/streams/advance-checkpoint.ts',
        find: 'known.total_shards + 1',
        replace: 'known.total_shards + 2',
      },
    ],
  },
  {
    name: 'a stream document that drops the fields of the next release',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/documents/document-schemas.ts',
        find: 'export const streamDocument: z.ZodType<Stream> = z.looseObject({',
        replace: 'export const streamDocument: z.ZodType<Stream> = z.object({',
      },
    ],
  },
  {
    name: 'a rebuild cursor that passes the stream it has left for the next page',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/streams/rebuild-streams.ts',
        find: 'page.at(-1)?.object.name ?? listed.at(-1)?.name',
        replace: 'listed.at(-1)?.name',
      },
    ],
  },
  {
    name: 'a survey of the bucket that ends with its first full page',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/streams/resync-streams.ts',
        find: 'if (listed.length === limit && last !== undefined)',
        replace: 'if (listed.length > limit && last !== undefined)',
      },
    ],
  },
  {
    name: 'a registration of streams that ends with its first full page',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/streams/resync-streams.ts',
        find: 'return listed.length < LISTED ? undefined : listed.at(-1)?.name;',
        replace: 'return listed.length <= LISTED ? undefined : listed.at(-1)?.name;',
      },
    ],
  },
  {
    name: 'a resync that is made once and never again',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/documents/tasks.ts',
        find: 'if (!last || isOlderThan(last.created_at, config.audit_s - 30, now()))',
        replace: 'if (!last)',
      },
    ],
  },
  {
    name: 'a task that is given up after its first failure',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/tasks/task-message.ts',
        find: 'return {waits: message};',
        replace: 'return {result: message};',
      },
    ],
  },
  {
    name: 'a run that continues without an operator after its document was lost',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/runs/ensure-run.ts',
        find: "status: isLost ? 'paused' : frozen",
        replace: 'status: frozen',
      },
    ],
  },
  {
    name: 'a pause that the next tick ends',
    class: 'lose',
    edits: [
      {
        file: 'shared/domain/run/run.ts',
        find: "next.status = run.status === 'paused' ? 'paused' : 'active';",
        replace: "next.status = 'active';",
      },
    ],
  },
  {
    name: 'a scale message, outdated by half, that sets all of its fields',
    class: 'lose',
    edits: [
      {
        file: 'shared/domain/commands/settings.ts',
        find: '.filter(([key]) => current.includes(key))',
        replace: '',
      },
    ],
  },
  {
    name: 'a stop that a later message outdates',
    class: 'lose',
    edits: [
      {
        file: 'shared/domain/commands/commands.ts',
        find: "    case 'stop':\n",
        replace:
          "    case 'stop':\n      if (isOutdated(run, 'status', said_at)) return outdatedBy(run, ['status']);\n",
      },
    ],
  },
  {
    name: 'a rejected message that leaves no record',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/events/message-records.ts',
        find: 'if (!(await tx.get(path)))',
        replace: 'if (await tx.get(path))',
      },
    ],
  },
  {
    name: 'an incarnation that was refused and leaves no attempt',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/workers/tpu-operations.ts',
        find: '  recordAttempt(deps, tx, worker, {worker: refused, death}, now);\n',
        replace: '',
      },
    ],
  },
  {
    name: 'an event that expires within an hour',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/documents/event-log.ts',
        find: 'KEPT_DAYS * 86_400_000',
        replace: 'KEPT_DAYS * 86_400',
      },
    ],
  },
  {
    name: 'a command that comes before the first event of its run and is rejected',
    class: 'lose',
    edits: [
      {
        file: 'shared/control-plane/events/commands/run-commands.ts',
        find: 'if (stream) await ensureRun(deps, run);',
        replace: 'if (!stream) await ensureRun(deps, run);',
      },
    ],
  },
];
