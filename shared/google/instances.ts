/**
 * Calls to Compute Engine for instances with TPUs. The client repeats no call by itself; tpu-calls.ts repeats reads. Instances are in no
 * group, because a group would replace a lost instance, as the next tick does.
 */
import {setTimeout as sleep} from 'node:timers/promises';
import {quotaIdsOf} from '../domain/fleet/accelerators.ts';
import type {Tpus} from '../ports/ports.ts';
import type {InstancesClient, Operation, ScopedList, ZoneOperationsClient} from './compute-client.d.ts';
import {clientOptionsFor} from './endpoint.ts';
import {isAlreadyExists, isContention, tpuError} from './errors.ts';
import {instanceFor, tpuOf} from './instance-resources.ts';
import {memoizeAsync} from './memoize-async.ts';
import {CALL, type DriverOptions, deleted, FAILS_FAST_MS, readAll, readOne} from './tpu-calls.ts';

/** A project may have thousands of other instances. */
const FILTER = 'labels.managed-by=gleaner';
const GOING = ['STOPPING', 'DEPROVISIONING'];

type Opened = {instances: InstancesClient; operations: ZoneOperationsClient};

export function openInstances({project, endpoint, token, ...settings}: DriverOptions): Tpus {
  const open = memoizeAsync(async (): Promise<Opened> => {
    // The index of the package loads 200 clients.
    const [{InstancesClient}, {ZoneOperationsClient}] = await Promise.all([
      import('@google-cloud/compute/build/src/v1/instances_client.js'),
      import('@google-cloud/compute/build/src/v1/zone_operations_client.js'),
    ]);
    const options = {projectId: project, ...clientOptionsFor(endpoint, token)};
    return {instances: new InstancesClient(options), operations: new ZoneOperationsClient(options)};
  });
  return {
    async list() {
      const {instances} = await open();
      await instances.initialize();
      const unreachable = new Set<string>();
      const scopes = await readAll('list instances', unreachable, async pageToken => {
        const request = {project, filter: FILTER, maxResults: 500, pageToken};
        const options = {...CALL, autoPaginate: false};
        const [, , answer] = await instances.innerApiCalls.aggregatedList(request, options);
        const {items, unreachables, nextPageToken = ''} = answer;
        const scopes = Object.entries(items ?? {});
        const silent = scopes.filter(([, scope]) => isSilent(scope)).map(([scope]) => scope);
        return {items: scopes, page: {nextPageToken, unreachable: [...(unreachables ?? []), ...silent]}};
      });
      const tpus = scopes.flatMap(([, scope]) => scope.instances ?? []).map(tpuOf);
      return {tpus: tpus.filter(({zone}) => !unreachable.has(zone)), unreachable: [...unreachable]};
    },

    async get(name, zone) {
      const {instances} = await open();
      const [found] = await readOne(`get ${name}`, zone, () =>
        instances.get({project, zone, instance: name}, CALL),
      );
      return found && tpuOf(found);
    },

    async create(request) {
      const opened = await open();
      const {name, zone, accelerator, provider, queue} = request;
      const quotas = quotaIdsOf(accelerator, request.spot || queue !== null, provider);
      try {
        const instanceResource = instanceFor(request, settings, Date.now());
        const ids = queue ? {requestId: queue.request_id} : {};
        const insert = {project, zone, instanceResource, ...ids};
        const [{latestResponse}] = await opened.instances.insert(insert, CALL);
        await failFast(opened.operations, {project, zone}, latestResponse);
        return 'started';
      } catch (error) {
        const {tpu} = isAlreadyExists(error) || isContention(error) ? await stateNow(name, zone) : {};
        if (tpu && tpu.labels['managed-by'] === 'gleaner') return 'exists';
        // Our list leaves this instance out, so the tick would request it for ever.
        const foreign = tpu && new NotOurs(`there is an instance ${name} that is not Gleaner's`);
        throw tpuError(`create ${name}`, zone, foreign ?? error, quotas);
      }
    },

    async delete(name, zone, part) {
      // Instances have no queued resources.
      if (part === 'queued') return 'absent';
      const {instances} = await open();
      return deleted(name, zone, {
        ask: () => instances.delete({project, zone, instance: name}, CALL),
        isGoing: async () => GOING.includes((await stateNow(name, zone)).tpu?.state ?? ''),
      });
    },
  };

  async function stateNow(name: string, zone: string) {
    const {instances} = await open();
    const [found] = await instances.get({project, zone, instance: name}, CALL).catch(() => []);
    return found ? {tpu: tpuOf(found)} : {};
  }
}

/** `code`: INVALID_ARGUMENT, because the same request fails until a person deletes the instance. */
class NotOurs extends Error {
  readonly code = 3;
}

function isSilent({warning}: ScopedList): boolean {
  return Boolean(warning?.code) && warning?.code !== 'NO_RESULTS_ON_PAGE';
}

/** Throws the error of an insert that fails within seconds. No call waits for success, because an instance may take minutes to start. */
async function failFast(
  operations: ZoneOperationsClient,
  place: {project: string; zone: string},
  begun: Operation,
): Promise<void> {
  let operation = begun;
  for (const pause of FAILS_FAST_MS) {
    if (operation.status === 'DONE') break;
    await sleep(pause);
    // An operation without a readable state has still started.
    const [read] = await operations
      .get({...place, operation: begun.name ?? ''}, CALL)
      .catch((): Operation[] => []);
    operation = read ?? operation;
  }
  const [first] = operation.error?.errors ?? [];
  if (operation.status !== 'DONE' || !first) return;
  const text = `${first.message ?? 'no reason given'} (${first.code ?? 'no code'})`;
  throw Object.assign(new Error(text), {code: operation.httpErrorStatusCode ?? undefined});
}
