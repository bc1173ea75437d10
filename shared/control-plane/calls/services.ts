import type {NotUnderstood} from '../../contracts/errors.ts';
import type {Config} from '../../contracts/settings/config.ts';
import type {FrozenOutput} from '../../domain/stream/advance.ts';
import type {Bus, Catalog, Now, Objects, ObjectTokens, Store, Tpus, Webhook} from '../../ports/ports.ts';
import type {Log} from './log.ts';
import type {TickQueue} from './tick-queue.ts';

export type Account = 'worker' | 'control';

/** What the control plane calls, is told and remembers, but for its caches of documents. */
export type Services = {
  /** Its transactions mark the run of each changed stream, and write notifications: see documents/run-marks.ts and documents/notices.ts. */
  store: Store;
  bus: Bus;
  objects: Objects;
  tokens: ObjectTokens;
  tpus: Tpus;
  catalog: Catalog;
  /** Undefined where the deployment has no receiver of notifications, and in functions that send none. */
  webhook?: Webhook | undefined;
  /** Calls worker-api at the address that workers use. Resolves when worker-api has stored the call. */
  ping: () => Promise<void>;
  /** Account that the header `authorization` of a request proves. Throws `CallerRefused`, or another error without an answer of Google. */
  accountOf: (authorization: string | undefined) => Promise<Account>;
  now: Now;
  log: Log;
  config: Config;
  ticks: TickQueue;
  /** Begin of the last search for work that found none for any worker, by pool. */
  idlePools: Map<string, number>;
  frozenOutputs: Map<string, FrozenOutput>;
  /** Slots whose document a tick has not understood, each with its document. */
  slotsLeftAlone: Map<string, NotUnderstood['document']>;
  /** Text of `worker-startup/startup.sh`, part of every node's metadata. */
  startupScript: () => Promise<string>;
};
