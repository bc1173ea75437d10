/** Mistakes by which a machine can speak for another. */
import type {Mistakes} from './mistake.ts';

export const FORGE: Mistakes = {
  'a heartbeat whose secret is not compared': [
    {
      in: 'authenticate',
      find: '!$rule.bindsSecret && !$speaksFor($worker, $request)',
      replace: "$request.action !== 'heartbeat' && !$rule.bindsSecret && !$speaksFor($worker, $request)",
    },
  ],
  'a release whose secret is not compared': [
    {
      in: 'authenticate',
      find: '!$rule.bindsSecret && !$speaksFor($worker, $request)',
      replace: "$request.action !== 'release' && !$rule.bindsSecret && !$speaksFor($worker, $request)",
    },
  ],
  'a request for work whose secret is not compared': [
    {
      in: 'authenticate',
      find: '!$rule.bindsSecret && !$speaksFor($worker, $request)',
      replace: "$request.action !== 'lease' && !$rule.bindsSecret && !$speaksFor($worker, $request)",
    },
  ],
  'an end of a job whose secret is not compared': [
    {
      in: 'authenticate',
      find: '!$rule.bindsSecret && !$speaksFor($worker, $request)',
      replace: "$request.action !== 'finish' && !$rule.bindsSecret && !$speaksFor($worker, $request)",
    },
  ],
  'a host without a hello that may speak': [
    {
      in: 'speaksFor',
      find: 'if ($bound === undefined || $worker.incarnation !== $incarnation) return false;',
      replace: 'if ($bound === undefined || $worker.incarnation !== $incarnation) return true;',
    },
  ],
  'a secret that the next incarnation keeps': [
    {
      in: 'toCreating',
      within: "$enter($worker, 'creating', $now, $fields)",
      find: 'host_secrets: {}',
      replace: '',
    },
  ],
  'a hello whose ticket is not checked': [
    {
      in: 'bindHost',
      find: "$isTicketOf($config.identity, 'worker-api', $worker, $request.ticket)",
      replace: 'true',
    },
  ],
  'a ticket that is good for every worker of its age': [
    {
      in: 'ticketOf',
      find: "['gleaner-ticket/1', $deployment, $name, $incarnation, $born_at]",
      replace: "['gleaner-ticket/1', $deployment, $name.length, $incarnation, $born_at]",
    },
  ],
  'a second secret that replaces the first': [
    {in: 'decideHello', find: 'if ($worker.host_secrets[$host] !== undefined) {$$refuse}', replace: ''},
  ],
  'a repeated hello that is refused': [
    {
      in: 'decideHello',
      find: "if ($proof === 'secret') {const $named = $withHostName($worker, $request); $$rest}",
      replace: '',
    },
  ],
};
