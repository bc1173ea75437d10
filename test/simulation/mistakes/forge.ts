/** Mistakes by which a machine can speak for another. */
import type {Mistakes} from '../anchors.ts';

export const FORGE: Mistakes = {
  'a heartbeat whose secret is not compared': {
    in: 'handleHeartbeat',
    find: "if (!$speaksFor($worker, $request)) return $impostor($deps, 'take a heartbeat', $request);",
    replace: '',
  },
  'a release whose secret is not compared': {
    in: 'releaseStream',
    find: "if (!$speaksFor($worker, $request)) return $impostor($deps, 'release a stream', $request);",
    replace: '',
  },
  'a request for work whose secret is not compared': {
    in: 'answerLease',
    find: "if ($worker && !$speaksFor($worker, $request)) return $impostor($deps, 'lease work', $request);",
    replace: '',
  },
  'an end of a job whose secret is not compared': {
    in: 'finishJob',
    find: "if (!$speaksFor($worker, $request)) return $impostor($deps, 'finish a job', $request);",
    replace: '',
  },
  'a host without a hello that may speak': {
    in: 'speaksFor',
    find: 'if ($bound === undefined || $worker.incarnation !== $incarnation) return false;',
    replace: 'if ($bound === undefined || $worker.incarnation !== $incarnation) return true;',
  },
  'a secret that the next incarnation keeps': {
    in: 'toCreating',
    within: "$enter($worker, 'creating', $now, $fields)",
    find: 'host_secrets: {}',
    replace: '',
  },
  'a hello whose ticket is not checked': {
    in: 'bindHost',
    find: "!$isTicketOf($identity, 'worker-api', $worker, $request.ticket)",
    replace: 'false',
  },
  'a ticket that is good for every worker of its age': {
    in: 'ticketOf',
    find: "['gleaner-ticket/1', $deployment, $name, $incarnation, $born_at]",
    replace: "['gleaner-ticket/1', $deployment, $name.length, $incarnation, $born_at]",
  },
  'a second secret that replaces the first': {
    in: 'bindHost',
    find: 'if ($worker.host_secrets[$host] !== undefined) {$$refuse}',
    replace: '',
  },
  'a repeated hello that is refused': {
    in: 'bindHost',
    find: 'if ($speaksFor($worker, $request)) {const $named = $withHostName($worker, $request); $$rest}',
    replace: '',
  },
};
