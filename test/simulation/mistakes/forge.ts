/** Mistakes by which a machine can speak for another. */
import type {Mistake} from './mistake.ts';

const BIND = 'shared/control-plane/worker-api/hello.ts';
const ANSWERS = 'shared/control-plane/worker-api/answers.ts';

export const FORGE: Mistake[] = [
  {
    name: 'a heartbeat whose secret is not compared',
    class: 'forge',
    edits: [
      {
        file: 'shared/control-plane/worker-api/heartbeat.ts',
        find: 'if (!speaksFor(worker, request)) return',
        replace: 'if (!speaksFor(worker, request) && false) return',
      },
    ],
  },
  {
    name: 'a release whose secret is not compared',
    class: 'forge',
    edits: [
      {
        file: 'shared/control-plane/worker-api/release.ts',
        find: 'if (!speaksFor(known, request)) return',
        replace: 'if (!speaksFor(known, request) && false) return',
      },
    ],
  },
  {
    name: 'a request for work whose secret is not compared',
    class: 'forge',
    edits: [
      {
        file: 'shared/control-plane/worker-api/lease.ts',
        find: 'if (worker && !speaksFor(worker, request))',
        replace: 'if (worker && !speaksFor(worker, request) && false)',
      },
    ],
  },
  {
    name: 'a host without a hello that may speak',
    class: 'forge',
    edits: [
      {
        file: ANSWERS,
        find: 'if (bound === undefined || worker.incarnation !== incarnation) return false;',
        replace: 'if (bound === undefined || worker.incarnation !== incarnation) return true;',
      },
    ],
  },
  {
    name: 'a secret that the next incarnation keeps',
    class: 'forge',
    edits: [
      {
        file: 'shared/domain/worker/transitions.ts',
        find: '    host_secrets: {},\n',
        replace: '',
      },
    ],
  },
  {
    name: 'a hello whose ticket is not checked',
    class: 'forge',
    edits: [
      {
        file: BIND,
        find: "if (!isTicketOf(identity, 'worker-api', worker, request.ticket))",
        replace: "if (!isTicketOf(identity, 'worker-api', worker, request.ticket) && false)",
      },
    ],
  },
  {
    name: 'a ticket that is good for every worker of its age',
    class: 'forge',
    edits: [
      {
        file: 'shared/control-plane/workers/tickets.ts',
        find: 'identity.deployment, name, incarnation, born_at]',
        replace: 'identity.deployment, name.length, incarnation, born_at]',
      },
    ],
  },
  {
    name: 'a second secret that replaces the first',
    class: 'forge',
    edits: [
      {
        file: BIND,
        find: 'if (worker.host_secrets[host] !== undefined)',
        replace: 'if (worker.host_secrets[host] !== undefined && false)',
      },
    ],
  },
  {
    name: 'a repeated hello that is refused',
    class: 'forge',
    edits: [
      {
        file: BIND,
        find: 'if (speaksFor(worker, request)) {',
        replace: 'if (speaksFor(worker, request) && false) {',
      },
    ],
  },
];
