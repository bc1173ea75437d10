/** Mistakes that leave a TPU, a stray, a document or a task behind. */
import type {Mistake} from './mistake.ts';

export const LEAK: Mistake[] = [
  {
    name: 'a stray that is deleted only while it is being deleted',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/tick/plan-tick.ts',
        find: 'nodes.strays.filter(stray => !isGoing(stray))',
        replace: 'nodes.strays.filter(stray => isGoing(stray))',
      },
    ],
  },
  {
    name: 'a plan that passes over nodes without a document',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/tick/plan-tick.ts',
        find: '...fleet.wanted, ...managedIn(nodes)])',
        replace: '...fleet.wanted])',
      },
    ],
  },
  {
    name: 'an unwanted node that stays while it is created',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/tick/plan-tick.ts',
        find: '&& msOf(worker.born_at) > read_at_ms',
        replace: '&& msOf(worker.born_at) > 0 * read_at_ms',
      },
    ],
  },
  {
    name: 'many orphans that wait beyond their hour',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/fleet/orphans.ts',
        find: 'if (mark !== null && !isOlderThan(mark.since_at, WAIT_S, now) && isPaidFor) keep();',
        replace: 'if (mark !== null && isPaidFor) keep();',
      },
    ],
  },
  {
    name: 'a request in the queue behind a foreign node that stays',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/nodes.ts',
        find: 'isManaged(tpu) || isQueuedByUs(tpu)).map',
        replace: 'isManaged(tpu)).map',
      },
    ],
  },
  {
    name: 'a delete without effect that is not requested again',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/transitions.ts',
        find: 'actions: [ask(kind, worker)]',
        replace: "actions: kind === 'create' ? [ask(kind, worker)] : []",
      },
    ],
  },
  {
    name: 'a query of living workers that lacks those being deleted',
    class: 'leak',
    edits: [
      {
        file: 'shared/control-plane/state/documents.ts',
        find: "value: ['creating', 'booting', 'idle', 'working', 'draining', 'deleting']",
        replace: "value: ['creating', 'booting', 'idle', 'working', 'draining']",
      },
    ],
  },
  {
    name: 'a deleted node that must be unheard for a lease before it counts as gone',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/nodes.ts',
        find: "if (worker.phase === 'deleting') return true;",
        replace: '',
      },
    ],
  },
  {
    name: 'an answer about a missing node that its decision does not use',
    class: 'leak',
    edits: [
      {
        file: 'shared/control-plane/handlers/apply-plan.ts',
        find: 'reconcileWorkers(deps, others, asked, failures)',
        replace: 'reconcileWorkers(deps, others, terms, failures)',
      },
    ],
  },
  {
    name: 'a suspended queued resource that counts as given',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/provider-states.ts',
        find: "  ACTIVE: 'given',\n",
        replace: "  ACTIVE: 'given',\n  SUSPENDED: 'given',\n",
      },
    ],
  },
  {
    name: 'a hidden node that counts as coming',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/provider-states.ts',
        find: "  UNHIDING: 'coming',\n",
        replace: "  UNHIDING: 'coming',\n  HIDDEN: 'coming',\n",
      },
    ],
  },
  {
    name: 'a stopping node that counts as under repair',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/provider-states.ts',
        find: "  REPAIRING: 'mending',\n",
        replace: "  REPAIRING: 'mending',\n  STOPPED: 'mending',\n",
      },
    ],
  },
  {
    name: 'a repair that never ends',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/liveness.ts',
        find: 'if (!isOlderThan(worker.provider_since_at, limits.repair_s, now)) return undefined;',
        replace: 'if (!isOlderThan(worker.unready_at, limits.repair_s, now)) return undefined;',
      },
    ],
  },
  {
    name: 'a worker that reports a broken machine and is kept',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/worker/liveness.ts',
        find: 'if (worker.fault !== null)\n',
        replace: "if (worker.fault !== null && worker.phase === 'booting')\n",
      },
    ],
  },
  {
    name: 'a task that stays locked after its delivery died',
    class: 'leak',
    edits: [
      {
        file: 'shared/control-plane/state/tasks.ts',
        find: 'if (found.busy_until_at !== null && msOf(found.busy_until_at) > at) return undefined;',
        replace: 'if (found.busy_until_at !== null) return undefined;',
      },
    ],
  },
  {
    name: 'a node never seen READY that its delete message leaves',
    class: 'leak',
    edits: [
      {
        file: 'shared/control-plane/workers/tpu-operations.ts',
        find: 'if (tpu && !isOurs && isForeign(tpu)) return;',
        replace: 'if (tpu && !isOurs) return;',
      },
    ],
  },
  {
    name: 'a slot for every stream, also for the completed ones',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/fleet/fleet-plan.ts',
        find: 'streams: counts.unfinished})',
        replace: 'streams: counts.streams})',
      },
    ],
  },
  {
    name: 'a rebuild that does not wait for the deletes of orphans',
    class: 'leak',
    edits: [
      {
        file: 'shared/control-plane/workers/delete-orphans.ts',
        find: 'left: orphansLeft(nodes, workers)',
        replace: 'left: []',
      },
    ],
  },
];
