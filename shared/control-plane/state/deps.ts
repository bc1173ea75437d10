import type {Config} from '../../contracts/config.ts';
import type {Bus, Now, Objects, Store, Tpus} from '../../ports.ts';
import type {Log} from './log.ts';
import type {TickQueue} from './tick-queue.ts';

/** The ports and settings of one instance; one composition root builds them. */
export type Deps = {
  store: Store;
  bus: Bus;
  objects: Objects;
  tpus: Tpus;
  /** Calls worker-api by the address that workers use. Resolves when worker-api has stored the call. */
  ping: () => Promise<void>;
  now: Now;
  log: Log;
  config: Config;
  /** The ticks of this instance. */
  ticks: TickQueue;
  /** Hashes of frozen specs that this process has read, by run. */
  specHashes: Map<string, string>;
  /** The text of `worker-startup/startup.sh`, which every node is given. */
  startupScript: () => Promise<string>;
};
