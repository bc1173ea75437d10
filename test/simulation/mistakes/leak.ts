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
    name: 'many orphans that wait beyond their hour',
    class: 'leak',
    edits: [
      {
        file: 'shared/domain/zone/orphans.ts',
        find: 'if (mark !== null && !isOlderThan(mark.since_at, WAIT_S, now) && isPaidFor) keep();',
        replace: 'if (mark !== null && isPaidFor) keep();',
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
        file: 'shared/control-plane/documents/documents.ts',
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
        file: 'shared/control-plane/tick/apply-plan.ts',
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
        file: 'shared/control-plane/documents/tasks.ts',
        find: 'if (found.busy_until_at !== null && msOf(found.busy_until_at) > at) return undefined;',
        replace: 'if (found.busy_until_at !== null) return undefined;',
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
