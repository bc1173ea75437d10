/** Checks before a pool is created: its type of TPU, the offer of its zones, and its budget. */

import type {Cloud} from '../../client/cloud/cloud.ts';
import {googleOf} from '../../client/google/api.ts';
import {warn} from '../../client/text/output.ts';
import {LOCAL_HOSTS} from '../../emulator/tpu/catalog.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {
  acceleratorProblem,
  MAX_HOSTS,
  runtimeOf,
  runtimeProblem,
} from '../../shared/domain/fleet/accelerators.ts';
import type {ValuesOf} from '../../shared/domain/records/field.ts';
import type {poolSettings, poolTerms} from '../../shared/domain/records/pool-settings.ts';
import {checkBudget} from './budget.ts';
import {type Finding, refuseProblems} from './findings.ts';
import {checkOffer} from './offer.ts';

export type NewPool = Partial<ValuesOf<typeof poolTerms & typeof poolSettings>> & {
  accelerator: string;
  zones: string[];
};

/** Throws `CliError` where no TPU of the pool could exist. */
export async function checkPool({connection, store}: Cloud, name: string, pool: NewPool): Promise<void> {
  const {accelerator, provider = 'tpu-api', zones, budget_usd, spot = true} = pool;
  const {runtime_version = runtimeOf(accelerator, provider)} = pool;
  const what = `create pool ${name}`;
  const wrong =
    acceleratorProblem(accelerator, provider, connection.is_google ? MAX_HOSTS : LOCAL_HOSTS) ??
    runtimeProblem(accelerator, runtime_version, provider);
  if (wrong !== undefined) refuseProblems(what, [{problem: wrong}]);
  const offer = {zones, accelerator, runtime_version, provider};
  const findings: Finding[] = await checkOffer(googleOf(connection), connection.project, offer);
  if (budget_usd) {
    const prices = await readPrices({store, log: warn}, [{accelerator}]);
    findings.push(...checkBudget(budget_usd, {accelerator, spot, zones}, prices));
  }
  refuseProblems(what, findings);
}
