/**
 * Nodes and queued resources of the Cloud TPU API v2. The client repeats nothing by itself: reads are repeated here, and `create`
 * and `delete` not at all, because the next tick does them again anyway.
 */
import {setTimeout as sleep} from 'node:timers/promises';
import type {v2} from '@google-cloud/tpu';
import type {TpuRequest, Tpus} from '../ports.ts';
import {clientOptionsFor} from './endpoint.ts';
import {isAlreadyExists, isContention, isNotFound, tpuError} from './errors.ts';
import {lazily} from './memoize-async.ts';
import {readAll, readOne} from './tpu-reads.ts';
import {joined, nodeFor, UNSPECIFIED, type Words, wordOf} from './tpu-resources.ts';

const CALL = {timeout: 20_000, maxRetries: 0};
/** A stock-out shows in the operation that makes the node and not in the answer to the request, often within a second. */
const FAILS_FAST_MS = [300, 700, 1000];

type Client = InstanceType<typeof v2.TpuClient>;
type Opened = {client: Client; words: Words};
type Options = {
  project: string;
  /** Where the API is instead of Google's own address. */
  endpoint?: string | undefined;
  /** Token that the API at `endpoint` asks for. */
  token?: string | undefined;
  /** Who the nodes are; without it they are the Compute Engine default service account. */
  service_account?: string | undefined;
};

export function openTpus({project, endpoint, token, service_account}: Options): Tpus {
  const open = lazily(async (): Promise<Opened> => {
    const {v2, protos} = await import('@google-cloud/tpu');
    const {Node, QueuedResourceState, Symptom} = protos.google.cloud.tpu.v2;
    return {
      client: new v2.TpuClient({projectId: project, ...clientOptionsFor(endpoint, token)}),
      words: {
        state: Node.State,
        health: Node.Health,
        symptom: Symptom.SymptomType,
        queued: QueuedResourceState.State,
        initiator: QueuedResourceState.StateInitiator,
      },
    };
  });
  const parent = (zone: string): string => `projects/${project}/locations/${zone}`;
  const nodePath = (name: string, zone: string): string => `${parent(zone)}/nodes/${name}`;
  const queuedPath = (name: string, zone: string): string => `${parent(zone)}/queuedResources/${name}`;
  return {
    async list() {
      const {client, words} = await open();
      const unreachable = new Set<string>();
      const options = {...CALL, autoPaginate: false};
      const [nodes, queued] = await Promise.all([
        readAll('list TPUs', unreachable, async pageToken => {
          const request = {parent: parent('-'), pageSize: 500, pageToken};
          const [items, , page] = await client.listNodes(request, options);
          return {items, page};
        }),
        readAll('list queued resources', unreachable, async pageToken => {
          const request = {parent: parent('-'), pageSize: 500, pageToken};
          const [items, , page] = await client.listQueuedResources(request, options);
          return {items, page};
        }),
      ]);
      // A zone that answered one of the two shows half of what it has.
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
        await (request.queue ? queueNode : createNode)(opened.client, parent(zone), request, service_account);
        return 'started';
      } catch (error) {
        // Over REST, ALREADY_EXISTS arrives as 409, which this client takes for ABORTED.
        const stateNow = () =>
          request.queue
            ? queuedStateOf(opened, queuedPath(name, zone))
            : nodeStateOf(opened, nodePath(name, zone));
        if (isAlreadyExists(error) || (isContention(error) && (await stateNow()))) return 'exists';
        throw tpuError(`create ${name}`, zone, error);
      }
    },

    async delete(name, zone) {
      const opened = await open();
      const {client} = opened;
      // The queued resource takes its node with it; the other way round, it would be left to be deleted as well.
      const queued = await deleted(name, zone, {
        ask: () => client.deleteQueuedResource({name: queuedPath(name, zone), force: true}, CALL),
        stateNow: () => queuedStateOf(opened, queuedPath(name, zone)),
      });
      if (queued === 'started') return queued;
      return deleted(name, zone, {
        ask: () => client.deleteNode({name: nodePath(name, zone)}, CALL),
        stateNow: () => nodeStateOf(opened, nodePath(name, zone)),
      });
    },
  };
}

type Making = (
  client: Client,
  parent: string,
  request: TpuRequest,
  service_account: string | undefined,
) => Promise<void>;

const createNode: Making = async (client, parent, request, service_account) => {
  const {spot} = request;
  const node = {...nodeFor(request, service_account), ...(spot ? {schedulingConfig: {spot: true}} : {})};
  const [operation] = await client.createNode({parent, nodeId: request.name, node}, CALL);
  await failFast(client, operation.name ?? '');
};

const queueNode: Making = async (client, parent, request, service_account) => {
  const {name, spot, queue} = request;
  if (!queue) return;
  const queuedResource = {
    tpu: {nodeSpec: [{parent, nodeId: name, node: nodeFor(request, service_account)}]},
    ...(spot ? {spot: {}} : {}),
    queueingPolicy: {validUntilTime: {seconds: Math.ceil(Date.parse(queue.valid_until_at) / 1000)}},
  };
  // What becomes of it, the list says: a queued resource that FAILED stays there, with the reason.
  const ids = {queuedResourceId: name, requestId: queue.request_id};
  await client.createQueuedResource({parent, queuedResource, ...ids}, CALL);
};

type Deleting = {ask: () => Promise<unknown>; stateNow: () => Promise<string | undefined>};

async function deleted(name: string, zone: string, {ask, stateNow}: Deleting): Promise<'started' | 'absent'> {
  try {
    await ask();
    return 'started';
  } catch (error) {
    if (isNotFound(error)) return 'absent';
    if ((await stateNow()) === 'DELETING') return 'started';
    throw tpuError(`delete ${name}`, zone, error);
  }
}

/**
 * Throws the operation's error when it fails while we look. Nothing waits for it to succeed: that takes minutes, and the
 * operation may stay open long after the node is up.
 */
async function failFast(client: Client, operation: string): Promise<void> {
  for (const pause of FAILS_FAST_MS) {
    await sleep(pause);
    // An operation that cannot be looked at has been started all the same.
    const progress = await client.checkCreateNodeProgress(operation).catch(() => undefined);
    if (!progress?.done) continue;
    const {error} = progress.latestResponse as {error?: {code?: number; message?: string}};
    if (error) throw Object.assign(new Error(error.message ?? 'no reason given'), {code: error.code});
    return;
  }
}

/** Undefined when there is no such node, or no answer. */
async function nodeStateOf({client, words}: Opened, name: string): Promise<string | undefined> {
  try {
    const [{state}] = await client.getNode({name}, CALL);
    return wordOf(state, words.state) ?? UNSPECIFIED;
  } catch {
    return undefined;
  }
}

/** Undefined when there is no such queued resource, or no answer. */
async function queuedStateOf({client, words}: Opened, name: string): Promise<string | undefined> {
  try {
    const [{state}] = await client.getQueuedResource({name}, CALL);
    return wordOf(state?.state, words.queued) ?? UNSPECIFIED;
  } catch {
    return undefined;
  }
}
