import type {Transaction} from '../ports/ports.ts';
import type {ActiveRuns} from './caches/active-runs.ts';
import type {OpenRuns} from './caches/open-runs.ts';
import type {KnownPools} from './caches/pool-cache.ts';
import type {Services} from './calls/services.ts';

/** An open transaction, and the time of its decisions. */
export type DecisionContext = {deps: Deps; tx: Transaction; now: number};

export type Deps = Services & {
  activeRuns: ActiveRuns;
  openRuns: OpenRuns;
  /** Read it with `poolOf`. */
  knownPools: KnownPools;
};
