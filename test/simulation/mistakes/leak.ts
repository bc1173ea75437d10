/** Mistakes that leave a TPU, a stray, a document or a task behind. */
import type {Mistakes} from '../planting/anchors.ts';

export const LEAK: Mistakes = {
  'a stray that is deleted only while it is being deleted': {
    in: 'planTick',
    find: '$nodes.$strays.filter($stray => !$isGoing($stray))',
    replace: '$nodes.$strays.filter($stray => $isGoing($stray))',
  },
  'a plan that passes over nodes without a document': {
    in: 'planTick',
    find: 'new Set([...$workers.keys(), ...$fleet.$wanted, ...$managed])',
    replace: 'new Set([...$workers.keys(), ...$fleet.$wanted])',
  },
  'many orphans that wait beyond their hour': {
    in: 'decideOrphans',
    find: '$mark !== null && !$isOlderThan($mark.since_at, $wait, $now) && $isPaidFor',
    replace: '$mark !== null && $isPaidFor',
  },
  'a kept TPU that stays for ever': {
    in: 'keptBy',
    find: '!$keep || $msOf($keep.until_at) <= $now',
    replace: '!$keep',
  },
  'a late message by which TPUs are kept for longer': {
    in: 'decideKeep',
    within:
      '{$$before; const $until = $msOf($published_at) + $minutes * 60_000; if ($until <= $now) return $late; $$after}',
    find: '$msOf($published_at) + $minutes * 60_000',
    replace: '$now + $minutes * 60_000',
  },
  'a delete without effect that is not requested again': {
    in: 'askAgain',
    within: '{worker: {...$worker, asked_at: $now}, $$rest}',
    find: 'actions: [$ask($kind, $worker)]',
    replace: "actions: $kind === 'create' ? [$ask($kind, $worker)] : []",
  },
  'a query of living workers that lacks those being deleted': {
    in: 'LIVING',
    find: "['creating', 'booting', 'idle', 'working', 'draining', 'deleting']",
    replace: "['creating', 'booting', 'idle', 'working', 'draining']",
  },
  'a deleted node that must be unheard for a lease before it counts as gone': {
    in: 'missingIn',
    find: "if ($worker.phase === 'deleting') return true;",
  },
  'an answer about a missing node that its decision does not use': {
    in: 'reconcileMissing',
    within:
      '{$$before; const $asked = {...$terms, nodes: $nodes}; const {deletes: $deletes, others: $others} = $split; $$after}',
    find: '$reconcile($deps, $others, $asked, $failures)',
    replace: '$reconcile($deps, $others, $terms, $failures)',
  },
  'a suspended queued resource that counts as given': {
    in: 'QUEUE_STANDINGS',
    find: "ACTIVE: 'given'",
    replace: "ACTIVE: 'given', SUSPENDED: 'given'",
  },
  'a worker that reports a broken machine and is kept': {
    in: 'causeOfDeath',
    find: 'if ($worker.fault !== null) return $saidBy($worker, $worker.fault);',
    replace:
      "if ($worker.fault !== null && $worker.phase === 'booting') return $saidBy($worker, $worker.fault);",
  },
  'a task that stays locked after its delivery died': {
    in: 'claimTask',
    find: '$found.busy_until_at !== null && $msOf($found.busy_until_at) > $now',
    replace: '$found.busy_until_at !== null',
  },
  'a rebuild that does not wait for the deletes of orphans': {
    in: 'deleteOrphans',
    find: 'left: $orphansLeft($nodes, $workers)',
    replace: 'left: []',
  },
  'a cancelled job that its worker keeps': {
    in: 'concludeJobs',
    find: 'if ($decision.$next.lease === null) $clearWork($tx, $holder);',
  },
  'a job that keeps its place while it runs': {
    in: 'grantJob',
    within: "{status: 'running', $$fields}",
    find: 'queue: null',
  },
  'a job whose lease runs out and that its worker keeps': {
    in: 'endExpiredJobs',
    within: '{$$before; $clearWork($tx, $worker, ...$others); if (!$job) return; $$after}',
    find: '$clearWork($tx, $worker, ...$others);',
  },
  'a due job that its worker keeps': {
    in: 'endDueJob',
    within:
      '{$$before; if (!$end) return false; $$read; $storeEnded($deps, $tx, $$job); $clearWork($tx, $holder, ...$others); return true;}',
    find: '$clearWork($tx, $holder, ...$others);',
  },
  'an expired run that keeps the documents of its streams': {
    in: 'deleteStream',
    find: 'if ($shards.length < $most) $tx.delete($path);',
  },
  'a cancelled stream that its worker keeps': {
    in: 'onStreams',
    find: "$decision.kind === 'applied' && $decision.$next.lease === null",
    replace: 'false',
  },
  'an old run that keeps the documents of its streams': {
    in: 'expireSome',
    find: '$isOlderThan($run.updated_at, $days.streams * 86_400, $now)',
    replace: '$isOlderThan($run.created_at, $days.streams * 86_400, $now)',
  },
};
