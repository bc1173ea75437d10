import {planAllBudgets, planPools} from '../../domain/tick/pools.ts';
import {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {endDueJobs, endOrphanedJobs} from '../jobs/end-jobs.ts';
import {schedulePending} from '../jobs/schedule-jobs.ts';
import type {Reconciled} from '../workers/reconcile-workers.ts';
import {applyBudgets, applyPlans} from './apply-plan.ts';
import {listNodes} from './list-nodes.ts';
import {markBudgets} from './mark-budgets.ts';
import {copyMonth} from './month.ts';
import {readBudgets, readSnapshot} from './read-snapshot.ts';

/**
 * Reads a snapshot, plans and applies. Decisions depend on state only, so any event may be lost. Budgets are handled first, before the list
 * of nodes arrives. Each pool is planned alone. A failed part does not stop other parts, and makes the tick run again.
 */
export async function tick(deps: Deps): Promise<void> {
  const failures = new Failures(deps);
  const listing = failures.isolate('list the nodes', () => listNodes(deps));
  await failures.isolate('schedule pending jobs', () => schedulePending(deps));
  await failures.isolate('end due jobs', () => endDueJobs(deps));
  const budgets = await readBudgets(deps, failures);
  await failures.isolate('copy the spending of the month', () => copyMonth(deps, budgets));
  await markBudgets(deps, budgets, failures);
  const spent: Reconciled[] = [];
  for (const plan of planAllBudgets(budgets, deps.config, deps.now()))
    spent.push(await applyBudgets(deps, plan, failures));
  const snapshot = await readSnapshot(deps, budgets, listing, failures);
  await applyPlans(deps, planPools(snapshot, deps.config, deps.now()), spent, failures);
  await failures.isolate('end the jobs that no worker holds', () => endOrphanedJobs(deps, snapshot));
  failures.rethrow();
  deps.log('INFO', 'The tick is completed', {signal: 'tick-completed'});
}
