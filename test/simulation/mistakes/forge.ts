/** Mistakes by which a machine can speak for another. */
import type {ConditionName} from '../conditions/conditions.ts';
import type {Mistakes} from '../planting/anchors.ts';

/** Accepts every secret in requests for this task. */
function uncheckedFor(task: string, shown_by: ConditionName = 'forger') {
  return {
    shown_by,
    in: 'authenticate',
    find: 'if (!rule.bindsSecret && $UNPROVEN) return $REFUSAL;',
    replace: `if (rule.task !== '${task}' && !rule.bindsSecret && $UNPROVEN) return $REFUSAL;`,
  };
}

export const FORGE: Mistakes = {
  'a heartbeat whose secret is not compared': uncheckedFor('take a heartbeat'),
  'a release whose secret is not compared': uncheckedFor('release a stream'),
  'a request for work whose secret is not compared': uncheckedFor('lease work'),
  'an end of a job whose secret is not compared': uncheckedFor('finish a job', 'forged jobs'),
  'a host without a hello that may speak': {
    shown_by: 'slices',
    in: 'speaksFor',
    find: 'if ($BOUND === undefined || $WORKER.incarnation !== $INCARNATION) return false;',
    replace: 'if ($BOUND === undefined || $WORKER.incarnation !== $INCARNATION) return true;',
  },
  'a secret of which only the length is compared': {
    shown_by: 'forger',
    in: 'speaksFor',
    find: 'return $IS_SAME($BOUND, $GIVEN);',
    replace: 'return $BOUND.length === $GIVEN.length;',
  },
  'a secret that the next incarnation keeps': {
    shown_by: 'forger',
    in: 'toCreating',
    find: 'born_at: $BORN_AT',
    replace: 'host_secrets: worker.host_secrets, born_at: $BORN_AT',
  },
  'a hello whose ticket is not checked': {
    shown_by: 'forger',
    in: 'bindHost',
    find: "$HAS_TICKET() ? 'ticket' : 'none'",
    replace: "'ticket'",
  },
  'a second secret that replaces the first': {
    shown_by: 'forger',
    in: 'decideHello',
    find: 'if ($WORKER.host_secrets[$HOST] !== undefined) {$$$REFUSE}',
  },
  'a repeated hello that is refused': {
    shown_by: 'forger',
    in: 'bindHost',
    find: "$SPEAKS_FOR($WORKER, $REQUEST) ? 'secret' : $PROOF",
    replace: '$PROOF',
  },
};
