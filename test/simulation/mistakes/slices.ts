import type {Mistakes} from '../planting/anchors.ts';

/** Hosts of a slice that act for one another, or that no barrier waits for. */
export const SLICES: Mistakes = {
  'a host but the first that leases work': {
    in: 'joinSlice',
    find: '$parseJobWork($worker.work) === undefined && $request.host === $FIRST_HOST',
    replace: '$parseJobWork($worker.work) === undefined',
  },
  'a slice that lives by its loudest host': {
    in: 'quietestHost',
    find: "($word.at ?? '') < ($oldest.at ?? '')",
    replace: "($word.at ?? '') > ($oldest.at ?? '')",
  },
  'an attempt that begins on hosts that are bound, and not ready': {
    in: 'unreadyHosts',
    find: "$worker.host_secrets[$host] !== undefined && $worker.hosts[$host]?.phase === 'idle'",
    replace: '$worker.host_secrets[$host] !== undefined',
  },
  'a lost peer that ends the attempt before its cause': {
    in: 'endProcess',
    find: "$end.outcome === 'completed' || $end.cause === 'peer'",
    replace: "$end.outcome === 'completed'",
  },
  'a slice that is up with its first host': {
    in: 'heardFrom',
    find: '!$isSetup && $bootingHosts($worker).length === 0',
    replace: '!$isSetup',
  },
  'a job with the result of its last host': {
    in: 'endOfAll',
    find: "$all[0] ?? $failed(0, 'it gave no end')",
    replace: "$all.at(-1) ?? $failed(0, 'it gave no end')",
  },
  'an attempt that waits for its hosts until its timeout': {
    in: 'endProcess',
    find: '$Math.min($now + $PEERS_S * 1000, $due)',
    replace: '$due',
  },
  'a job that begins with a slice too few': {
    in: 'decideJobGrant',
    find: '$gathered.length + 1 >= $job.slices',
    replace: '$gathered.length + 2 >= $job.slices',
  },
  'an attempt whose end leaves its other slices at work': {
    in: 'decideFinish',
    within: '{endedJob: $ended, worker: $worker, members: $others.map($withoutWork), events: $events}',
    find: 'members: $others.map($withoutWork)',
  },
  'a slice that counts as one host': {
    in: 'createFields',
    within: '{...$ask, usd_per_hour: $usd, priced_as: $priced, host_count: $count, charged_to: $charged}',
    find: 'host_count: $count',
    replace: 'host_count: 1',
  },
  'a host whose restart ends no attempt': {
    in: 'decideHostHeartbeat',
    find: '$isRestart && $job && $isHeldBy($job, $worker)',
    replace: 'false',
  },
  'a job that its first host completes': {
    in: 'endProcess',
    within:
      'if (Object.keys($ends).length === $processes) return $endAttempt({...$job, ends: $ends}, $all, $usd, $now);',
    find: 'Object.keys($ends).length === $processes',
    replace: 'Object.keys($ends).length > 0',
  },
  'smaller jobs that pass a larger one for ever': {
    in: 'groupIn',
    within: '$rankOf($member, $now) < ($isLate ? $AT_WORK + 1 : $AT_WORK)',
    find: '$isLate ? $AT_WORK + 1 : $AT_WORK',
    replace: '$AT_WORK',
  },
  'a slice that a larger job keeps, and a smaller one gets': {
    in: 'waitingFor',
    find: '$keeper ? $first.slice(0, $first.indexOf($keeper) + 1) : $first',
    replace: '$first',
  },
  'a zone with too few slices that is tried without a pause': {
    in: 'gatherSlots',
    within: 'return $pause > $iso($now) ? [] : ($group() ?? []);',
    find: '$pause > $iso($now)',
    replace: 'false',
  },
  'a slice that waits for others without end': {
    in: 'groupIn',
    find: "$worker?.phase === 'idle' && $isOlderThan($from_at, $boot_s, $now)",
    replace: 'false',
  },
  'a death that leaves the other slices of its job at work': {
    in: 'freeMembers',
    find: '$job && $ended.has($job.job) ? $members : []',
    replace: '[]',
  },
  'a job without a holder that larger jobs hide': {
    in: 'endOrphanedJobs',
    within: 'if ((await $store.count($config.jobs_collection, $running.where)) <= $held.size) return;',
    find: '$held.size',
    replace: '3 * $held.size',
  },
  'a draining slice that keeps the work of its restarted host': {
    in: 'bootsAgain',
    within: "if ($worker.phase === 'draining') return $withoutWork($worker);",
    find: 'return $withoutWork($worker);',
    replace: 'return $worker;',
  },
};
