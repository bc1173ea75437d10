import type {Mistakes} from '../planting/anchors.ts';

/** Hosts of a slice that act for one another, or that no barrier waits for. */
export const SLICES: Mistakes = {
  'a host but the first that leases work': {
    shown_by: 'slices',
    in: 'joinSlice',
    find: '$PARSE_JOB_WORK($WORKER.work) === undefined && $REQUEST.host === $FIRST_HOST',
    replace: '$PARSE_JOB_WORK($WORKER.work) === undefined',
  },
  'a slice that lives by its loudest host': {
    shown_by: 'slices',
    in: 'quietestHost',
    find: "($WORD.at ?? '') < ($OLDEST.at ?? '')",
    replace: "($WORD.at ?? '') > ($OLDEST.at ?? '')",
  },
  'an attempt that begins on hosts that are bound, and not ready': {
    shown_by: 'slices',
    in: 'unreadyHosts',
    find: "$WORKER.host_secrets[$HOST] !== undefined && $WORKER.hosts[$HOST]?.phase === 'idle'",
    replace: '$WORKER.host_secrets[$HOST] !== undefined',
  },
  'a lost peer that ends the attempt before its cause': {
    shown_by: 'slices',
    in: 'endProcess',
    find: "$END.outcome === 'completed' || $END.cause === 'peer'",
    replace: "$END.outcome === 'completed'",
  },
  'a slice that is up with its first host': {
    shown_by: 'slices',
    in: 'heardFrom',
    find: '!$IS_SETUP && $BOOTING_HOSTS($WORKER).length === 0',
    replace: '!$IS_SETUP',
  },
  'a job with the result of its last host': {
    shown_by: 'slices',
    in: 'endOfAll',
    find: "$ALL[0] ?? $FAILED(0, 'it did not report its end')",
    replace: "$ALL.at(-1) ?? $FAILED(0, 'it did not report its end')",
  },
  'an attempt that waits for its hosts until its timeout': {
    shown_by: 'slices',
    in: 'endProcess',
    find: '$MATH.min($NOW + $PEERS_S * 1000, $DUE)',
    replace: '$DUE',
  },
  'a job that begins with a slice too few': {
    shown_by: 'gangs',
    in: 'decideJobGrant',
    find: '$GATHERED.length + 1 >= $JOB.slices',
    replace: '$GATHERED.length + 2 >= $JOB.slices',
  },
  'an attempt whose end leaves its other slices at work': {
    shown_by: 'slices',
    in: 'decideFinish',
    find: 'members: $OTHERS.map($WITHOUT_WORK)',
  },
  'a slice that counts as one host': {
    shown_by: 'slices',
    in: 'createFields',
    find: '{...$ASK, usd_per_hour, priced_as: $PRICED, host_count, charged_to}',
    replace: '{...$ASK, usd_per_hour, priced_as: $PRICED, host_count: 1, charged_to}',
  },
  'a host whose restart ends no attempt': {
    shown_by: 'slices',
    in: 'decideHostHeartbeat',
    find: '$IS_RESTART && $JOB && $IS_HELD_BY($JOB, $WORKER)',
    replace: 'false',
  },
  'a job that its first host completes': {
    shown_by: 'slices',
    in: 'endProcess',
    find: 'Object.keys(ends).length === $PROCESSES',
    replace: 'Object.keys(ends).length > 0',
  },
  'smaller jobs that pass a larger one for ever': {
    shown_by: 'gangs',
    in: 'groupIn',
    find: '$IS_LATE ? $AT_WORK + 1 : $AT_WORK',
    replace: '$AT_WORK',
  },
  'a slice that a larger job keeps, and a smaller one gets': {
    shown_by: 'slices',
    in: 'waitingFor',
    find: '$KEEPER ? $FIRST.slice(0, $FIRST.indexOf($KEEPER) + 1) : $FIRST',
    replace: '$FIRST',
  },
  'a zone with too few slices that is tried without a pause': {
    shown_by: 'gangs',
    in: 'gatherSlots',
    find: '$PAUSE > $ISO($NOW)',
    replace: 'false',
  },
  'a slice that waits for others without end': {
    shown_by: 'gangs',
    in: 'groupIn',
    find: "$WORKER?.phase === 'idle' && $IS_OLDER_THAN($FROM_AT, $BOOT_S, $NOW)",
    replace: 'false',
  },
  'a death that leaves the other slices of its job at work': {
    shown_by: 'slices',
    in: 'freeMembers',
    find: '$JOB && $ENDED.has($JOB.job) ? $MEMBERS : []',
    replace: '[]',
  },
};
