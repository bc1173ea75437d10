/** The parts of Deps that tests and benchmarks have in common. */

import {CallerRefused} from '../../shared/contracts/errors.ts';
import {ActiveRuns} from '../../shared/control-plane/caches/active-runs.ts';
import {newOpenRuns} from '../../shared/control-plane/caches/open-runs.ts';
import {KnownPools} from '../../shared/control-plane/caches/pool-cache.ts';
import {TickQueue} from '../../shared/control-plane/calls/tick-queue.ts';
import type {Deps} from '../../shared/control-plane/deps.ts';
import {withNotices} from '../../shared/control-plane/documents/notices.ts';
import {type RunMarks, withRunMarks} from '../../shared/control-plane/documents/run-marks.ts';
import {aCatalog} from './catalog.ts';

/** The facts that an instance of a function keeps between its calls. */
export type Memory = Pick<
  Deps,
  'activeRuns' | 'openRuns' | 'idlePools' | 'knownPools' | 'frozenOutputs' | 'slotsLeftAlone'
> & {
  runMarks: RunMarks;
};

/** The caches of one release of the code. */
export type Caches = {
  ActiveRuns: typeof ActiveRuns;
  newOpenRuns: typeof newOpenRuns;
  KnownPools: typeof KnownPools;
};
const CACHES: Caches = {ActiveRuns, newOpenRuns, KnownPools};

export function newMemory(caches = CACHES): Memory {
  return {
    activeRuns: new caches.ActiveRuns(),
    openRuns: caches.newOpenRuns(),
    idlePools: new Map(),
    runMarks: new Map(),
    knownPools: new caches.KnownPools(),
    frozenOutputs: new Map(),
    slotsLeftAlone: new Map(),
  };
}

/** Tokens of a world without Google: the name of the account is its token. */
export const accountOf: Deps['accountOf'] = async authorization => {
  if (authorization === 'Bearer worker') return 'worker';
  if (authorization === 'Bearer control') return 'control';
  throw new CallerRefused(401, 'the request has no identity token');
};

/** Ports that do nothing, a new memory, and the given ports. */
export function depsOf(
  given: Pick<Deps, 'store' | 'objects' | 'bus' | 'tpus' | 'now' | 'config'> & Partial<Deps & Memory>,
): Deps {
  const log: Deps['log'] = (severity, message) => severity === 'ERROR' && console.error(message);
  const {runMarks, ...memory} = newMemory();
  const deps = {
    checkpoints: given.objects,
    ping: async () => {},
    tokens: {issue: async () => Promise.reject(new Error('this world issues no tokens'))},
    secrets: {read: async () => Promise.reject(new Error('this world has no secrets'))},
    catalog: aCatalog(),
    accountOf,
    log,
    ticks: new TickQueue({now: given.now, sleep: async () => {}}),
    startupScript: async () => '#!/bin/bash\n',
    ...memory,
    runMarks,
    ...given,
  };
  const store = withRunMarks(deps);
  return {...deps, store: given.config.notify ? withNotices(store, given.now) : store};
}
