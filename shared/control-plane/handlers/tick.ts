import {planBudgets, planTick} from '../../domain/tick/plan-tick.ts';
import {endDueJobs} from '../jobs/end-jobs.ts';
import {schedulePending} from '../jobs/schedule-jobs.ts';
import type {Deps} from '../state/deps.ts';
import {Failures} from '../state/failures.ts';
import {listNodes} from '../workers/list-nodes.ts';
import {applyBudgets, applyPlan} from './apply-plan.ts';
import {readAccounts, readSnapshot} from './read-snapshot.ts';

/**
 * A pass of snapshot, plan and apply. State alone decides, so any event may be lost. Budgets go first, before the list of nodes arrives.
 * A failed part stops no other part, and makes the tick run again.
 */
export async function tick(deps: Deps): Promise<void> {
  const failures = new Failures(deps);
  const listing = failures.isolate('list the nodes', () => listNodes(deps));
  await failures.isolate('take up pending jobs', () => schedulePending(deps));
  await failures.isolate('end due jobs', () => endDueJobs(deps));
  const accounts = await readAccounts(deps, failures);
  const spent = await applyBudgets(deps, planBudgets(accounts, deps.config, deps.now()), failures);
  const snapshot = await readSnapshot(deps, accounts, listing, failures);
  await applyPlan(deps, snapshot, planTick(snapshot, deps.config, deps.now()), spent, failures);
  failures.rethrow();
  deps.log('INFO', 'The tick is completed', {signal: 'tick-completed'});
}
