import type {Config} from '../../contracts/config.ts';
import type {Bus, Now, Objects, Store, Ticker, Tpus} from '../../ports.ts';
import type {Log} from './log.ts';

/** Stream objects, `name#generation`, that were registered or refused, and the streams that had a document then. */
export type Taken = {objects: Set<string>; streams: Set<string>};

/** What every shell function is given; one composition root builds it. */
export type Deps = {
  store: Store;
  bus: Bus;
  objects: Objects;
  tpus: Tpus;
  ticker: Ticker;
  /** Calls worker-api by the address that workers use; resolves when it has stored that it was called. */
  ping: () => Promise<void>;
  now: Now;
  log: Log;
  config: Config;
  /** What this process has seen of the streams of each run. */
  taken: Map<string, Taken>;
  /** Hashes of frozen specs that this process has read, by run. */
  specs: Map<string, string>;
  /** The text of `worker-startup/startup.sh`, which every node is given. */
  startupScript: () => Promise<string>;
};
