/**
 * Calls to the Cloud TPU API v2 for nodes and queued resources. The client repeats no call by itself; tpu-calls.ts repeats reads.
 * `create` and `delete` are never repeated, because the next tick requests them again.
 */
import {setTimeout as sleep} from 'node:timers/promises';
import type {v2} from '@google-cloud/tpu';
import {quotaIdsOf} from '../domain/fleet/accelerators.ts';
import type {TpuRequest, Tpus} from '../ports/ports.ts';
import {clientOptionsFor} from './endpoint.ts';
import {isAlreadyExists, isContention, tpuError} from './errors.ts';
import {memoizeAsync} from './memoize-async.ts';
import {CALL, type DriverOptions, deleted, FAILS_FAST_MS, readAll, readOne} from './tpu-calls.ts';
import {joined, type NodeSettings, nodeFor, UNSPECIFIED, type Words, wordOf} from './tpu-resources.ts';

type Client = InstanceType<typeof v2.TpuClient>;
type Opened = {client: Client; words: Words};
/** `client` replaces the client of the other options. */
type TpuClientOptions = DriverOptions & {client?: Client | undefined};

/** The client, loaded with the first call, and the words of its enumerations. */
async function openClient({project, endpoint, token, client}: TpuClientOptions): Promise<Opened> {
  const {v2, protos} = (await import('@google-cloud/tpu')).default;
  const {Node, QueuedResourceState, Symptom} = protos.google.cloud.tpu.v2;
  return {
    client: client ?? new v2.TpuClient({projectId: project, ...clientOptionsFor(endpoint, token)}),
    words: {
      state: Node.State,
      health: Node.Health,
      symptom: Symptom.SymptomType,
      queued: QueuedResourceState.State,
      initiator: QueuedResourceState.StateInitiator,
    },
  };
}

export function openTpus(options: TpuClientOptions): Tpus {
  const {project, endpoint: _, token: __, client: ___, ...settings} = options;
  const open = memoizeAsync(() => openClient(options));
  const parent = (zone: string): string => `projects/${project}/locations/${zone}`;
  const nodePath = (name: string, zone: string): string => `${parent(zone)}/nodes/${name}`;
  const queuedPath = (name: string, zone: string): string => `${parent(zone)}/queuedResources/${name}`;
  return {
    async list() {
      const {client, words} = await open();
      const unreachable = new Set<string>();
      const options = {...CALL, autoPaginate: false};
      const of = (pageToken: string) => ({parent: parent('-'), pageSize: 500, pageToken});
      const [nodes, queued] = await Promise.all([
        readAll('list TPUs', unreachable, async token => {
          const [items, , page] = await client.listNodes(of(token), options);
          return {items, page};
        }),
        readAll('list queued resources', unreachable, async token => {
          const [items, , page] = await client.listQueuedResources(of(token), options);
          return {items, page};
        }),
      ]);
      // If a zone answered only one of the two calls, its TPUs are incomplete, so it counts as unreachable.
      const tpus = joined(nodes, queued, words).filter(({zone}) => !unreachable.has(zone));
      return {tpus, unreachable: [...unreachable]};
    },

    async get(name, zone) {
      const {client, words} = await open();
      const [node, queued] = await Promise.all([
        readOne(`get ${name}`, zone, () => client.getNode({name: nodePath(name, zone)}, CALL)),
        readOne(`get ${name}`, zone, () => client.getQueuedResource({name: queuedPath(name, zone)}, CALL)),
      ]);
      return joined(node, queued, words)[0];
    },

    async create(request) {
      const opened = await open();
      const {name, zone} = request;
      try {
        await (request.queue ? queueNode : createNode)(opened.client, parent(zone), request, settings);
        return 'started';
      } catch (error) {
        // Over REST, ALREADY_EXISTS arrives as 409, which this client turns into ABORTED.
        const stateNow = () =>
          request.queue
            ? queuedStateOf(opened, queuedPath(name, zone))
            : nodeStateOf(opened, nodePath(name, zone));
        if (isAlreadyExists(error) || (isContention(error) && (await stateNow()))) return 'exists';
        throw tpuError(`create ${name}`, zone, error, quotaIdsOf(request.accelerator, request.spot));
      }
    },

    async delete(name, zone, part) {
      const opened = await open();
      const {client} = opened;
      // Deleting the queued resource also deletes its node. Deleting the node first would leave the queued resource.
      const queued = await deleted(name, zone, {
        ask: () => client.deleteQueuedResource({name: queuedPath(name, zone), force: true}, CALL),
        isGoing: async () => (await queuedStateOf(opened, queuedPath(name, zone))) === 'DELETING',
      });
      if (queued === 'started' || part === 'queued') return queued;
      return deleted(name, zone, {
        ask: () => client.deleteNode({name: nodePath(name, zone)}, CALL),
        isGoing: async () => (await nodeStateOf(opened, nodePath(name, zone))) === 'DELETING',
      });
    },
  };
}

type Making = (client: Client, parent: string, request: TpuRequest, settings: NodeSettings) => Promise<void>;

const createNode: Making = async (client, parent, request, settings) => {
  const {spot} = request;
  const node = {...nodeFor(request, settings), ...(spot ? {schedulingConfig: {spot: true}} : {})};
  const [operation] = await client.createNode({parent, nodeId: request.name, node}, CALL);
  await failFast(client, operation.name ?? '');
};

const queueNode: Making = async (client, parent, request, settings) => {
  const {name, spot, queue} = request;
  if (!queue) return;
  const queuedResource = {
    tpu: {nodeSpec: [{parent, nodeId: name, node: nodeFor(request, settings)}]},
    ...(spot ? {spot: {}} : {}),
    queueingPolicy: {validUntilTime: {seconds: Math.ceil(Date.parse(queue.valid_until_at) / 1000)}},
  };
  // The list shows the outcome: a queued resource that FAILED stays in the list with its reason.
  const ids = {queuedResourceId: name, requestId: queue.request_id};
  await client.createQueuedResource({parent, queuedResource, ...ids}, CALL);
};

/**
 * Throws the error of an operation that fails within seconds. No call waits for success: creation takes minutes, and the operation may stay
 * open long after the node is READY.
 */
async function failFast(client: Client, operation: string): Promise<void> {
  for (const pause of FAILS_FAST_MS) {
    await sleep(pause);
    // An operation without a readable state has still started.
    const progress = await client.checkCreateNodeProgress(operation).catch(() => undefined);
    if (!progress?.done) continue;
    const {error} = progress.latestResponse as {error?: {code?: number; message?: string}};
    if (error) throw Object.assign(new Error(error.message ?? 'no reason given'), {code: error.code});
    return;
  }
}

async function nodeStateOf({client, words}: Opened, name: string): Promise<string | undefined> {
  const [node] = await client.getNode({name}, CALL).catch(() => []);
  return node && (wordOf(node.state, words.state) ?? UNSPECIFIED);
}

async function queuedStateOf({client, words}: Opened, name: string): Promise<string | undefined> {
  const [queued] = await client.getQueuedResource({name}, CALL).catch(() => []);
  return queued && (wordOf(queued.state?.state, words.queued) ?? UNSPECIFIED);
}
