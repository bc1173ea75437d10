import type {NotUnderstood} from '../../contracts/errors.ts';
import type {Config} from '../../contracts/settings/config.ts';
import type {FrozenOutput} from '../../domain/stream/advance.ts';
import type {
  Bus,
  Catalog,
  Now,
  Objects,
  ObjectTokens,
  Secrets,
  Store,
  Tpus,
  Webhook,
} from '../../ports/ports.ts';
import type {Log} from './log.ts';
import type {TickQueue} from './tick-queue.ts';

export type Account = 'worker' | 'control';

/** What the control plane calls, receives and remembers, except for its caches of documents. */
export type Services = {
  /** Its transactions flag the run of each changed stream, and write notifications: see documents/run-marks.ts and documents/notices.ts. */
  store: Store;
  bus: Bus;
  objects: Objects;
  /** The bucket of checkpoints of jobs. */
  checkpoints: Objects;
  tokens: ObjectTokens;
  secrets: Secrets;
  tpus: Tpus;
  catalog: Catalog;
  /** Undefined if the deployment has no receiver of notifications, and in functions that send none. */
  webhook?: Webhook | undefined;
  /** Calls worker-api at the address that workers use. Resolves when worker-api has stored the call. */
  ping: () => Promise<void>;
  /** Account that the header `authorization` of a request proves. Throws `CallerRefused`, or another error if Google does not answer. */
  accountOf: (authorization: string | undefined) => Promise<Account>;
  now: Now;
  log: Log;
  config: Config;
  ticks: TickQueue;
  /** By pool, the start of the last search for work that found none for any worker. */
  idlePools: Map<string, number>;
  frozenOutputs: Map<string, FrozenOutput>;
  /** Slots whose document a tick could not understand, each with its document. */
  slotsLeftAlone: Map<string, NotUnderstood['document']>;
  /** Text of `worker-startup/startup.sh`, part of every node's metadata. */
  startupScript: () => Promise<string>;
};
