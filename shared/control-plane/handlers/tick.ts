import {planBudgets, planTick, type TickPlan} from '../../domain/tick/plan-tick.ts';
import type {Snapshot} from '../../domain/tick/snapshot.ts';
import type {Deps} from '../state/deps.ts';
import {Failures} from '../state/failures.ts';
import {listNodes} from '../workers/list-nodes.ts';
import {applyBudgets, applyPlan} from './apply-plan.ts';
import {findInvalid, readAccounts, readSnapshot} from './read-snapshot.ts';

/**
 * One pass of snapshot, plan and apply: the same decisions from nothing but state, so any event may be lost. Budgets go first and wait
 * for no list of nodes. A part that fails stops no other part, and makes the tick run again.
 */
export async function tick(deps: Deps): Promise<void> {
  const failures = new Failures(deps);
  const listing = failures.isolate('list the nodes', () => listNodes(deps));
  const accounts = await readAccounts(deps, failures);
  const spent = await applyBudgets(deps, planBudgets(accounts, deps.config, deps.now()), failures);
  const found = await readSnapshot(deps, accounts, listing, failures);
  const {snapshot, plan} = await planReadable(deps, found);
  await applyPlan(deps, snapshot, plan, spent, failures);
  failures.rethrow();
}

/** Plans again without the slots to fill whose documents cannot be parsed: such a slot must not keep work from the next one. */
async function planReadable(deps: Deps, found: Snapshot): Promise<{snapshot: Snapshot; plan: TickPlan}> {
  const read = new Set<string>();
  for (let snapshot = found; ; ) {
    const plan = planTick(snapshot, deps.config, deps.now());
    const empty = [...plan.others.values()].flat().flatMap(({name, seen}) => (seen ? [] : name));
    const invalid = await findInvalid(
      deps,
      empty.filter(name => !read.has(name)),
    );
    if (invalid.length === 0) return {snapshot, plan};
    for (const name of empty) read.add(name);
    snapshot = {...snapshot, unreadable: new Set([...snapshot.unreadable, ...invalid])};
  }
}
