/** Mistakes by which a machine can speak for another. */
import type {Edit, Mistakes} from '../planting/anchors.ts';

/** Accepts every secret in requests for this task. */
function uncheckedFor(task: string): Edit {
  return {
    in: 'authenticate',
    find: 'if (!$rule.$binds && !$speaksFor($worker, $request)) return $refuse($rule.$task, $request);',
    replace: `if ($rule.$task !== '${task}' && !$rule.$binds && !$speaksFor($worker, $request)) return $refuse($rule.$task, $request);`,
  };
}

export const FORGE: Mistakes = {
  'a heartbeat whose secret is not compared': uncheckedFor('take a heartbeat'),
  'a release whose secret is not compared': uncheckedFor('release a stream'),
  'a request for work whose secret is not compared': uncheckedFor('lease work'),
  'an end of a job whose secret is not compared': uncheckedFor('finish a job'),
  'a host without a hello that may speak': {
    in: 'speaksFor',
    find: 'if ($bound === undefined || $worker.incarnation !== $incarnation) return false;',
    replace: 'if ($bound === undefined || $worker.incarnation !== $incarnation) return true;',
  },
  'a secret that the next incarnation keeps': {
    in: 'toCreating',
    within: "$enter($worker, 'creating', $now, $fields)",
    find: 'born_at: $born_at',
    replace: 'host_secrets: $worker.host_secrets, born_at: $born_at',
  },
  'a hello whose ticket is not checked': {
    in: 'bindHost',
    find: "$hasTicket() ? 'ticket' : 'none'",
    replace: "'ticket'",
  },
  'a ticket that is good for every worker of its age': {
    in: 'ticketOf',
    find: "$signed($identity, $user, 'gleaner-ticket/1', [$name, $incarnation, $born_at])",
    replace: "$signed($identity, $user, 'gleaner-ticket/1', [$name.length, $incarnation, $born_at])",
  },
  'a second secret that replaces the first': {
    in: 'decideHello',
    find: 'if ($worker.host_secrets[$host] !== undefined) {$$refuse}',
  },
  'a repeated hello that is refused': {
    in: 'bindHost',
    find: "$speaksFor($worker, $request) ? 'secret' : $proof",
    replace: '$proof',
  },
};
