/** The TPUs of every provider of a deployment behind one port. */
import type {Provider} from '../domain/records/providers.ts';
import type {Tpus} from '../ports/ports.ts';
import {openInstances} from './instances.ts';
import type {NodeSettings} from './tpu-resources.ts';
import {openTpus} from './tpus.ts';

type ProviderOptions = {
  project: string;
  token?: string | undefined;
  /** Addresses that replace those of Google. */
  endpoints: {tpu?: string | undefined; compute?: string | undefined};
} & NodeSettings;

export function openProviders(
  providers: readonly Provider[],
  {endpoints, ...settings}: ProviderOptions,
): Tpus {
  const open: Record<Provider, () => Tpus> = {
    'tpu-api': () => openTpus({...settings, endpoint: endpoints.tpu}),
    'compute-engine': () => openInstances({...settings, endpoint: endpoints.compute}),
  };
  return joinProviders(new Map(providers.map(provider => [provider, open[provider]()])));
}

/**
 * A name is looked up with every provider, because a pool's provider may have changed since its node was created. A list needs the answers of
 * all providers, because half of a list proves nothing.
 */
export function joinProviders(drivers: ReadonlyMap<Provider, Tpus>): Tpus {
  const all = [...drivers.values()];
  const [only] = all;
  if (all.length === 1 && only) return only;
  return {
    async list() {
      const lists = await Promise.all(all.map(driver => driver.list()));
      const unreachable = new Set(lists.flatMap(list => list.unreachable));
      const tpus = lists.flatMap(list => list.tpus).filter(({zone}) => !unreachable.has(zone));
      return {tpus, unreachable: [...unreachable]};
    },
    async get(name, zone) {
      const answers = await Promise.allSettled(all.map(driver => driver.get(name, zone)));
      const found = answers.find(answer => answer.status === 'fulfilled' && answer.value);
      if (found?.status === 'fulfilled') return found.value;
      throwFirst(answers);
      return undefined;
    },
    async create(request) {
      const driver = drivers.get(request.provider);
      if (!driver)
        throw new Error(`Failed to create ${request.name}: GLEANER_PROVIDERS lacks ${request.provider}`);
      return driver.create(request);
    },
    async delete(name, zone, part) {
      const answers = await Promise.allSettled(all.map(driver => driver.delete(name, zone, part)));
      throwFirst(answers);
      return answers.some(answer => answer.status === 'fulfilled' && answer.value === 'started')
        ? 'started'
        : 'absent';
    },
  };
}

function throwFirst(answers: readonly PromiseSettledResult<unknown>[]): void {
  const failed = answers.find(answer => answer.status === 'rejected');
  if (failed) throw failed.reason;
}
