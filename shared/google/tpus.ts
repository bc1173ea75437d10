/**
 * Nodes of the Cloud TPU API v2. The client repeats nothing by itself: reads are repeated here, and `create` and `delete` not
 * at all, because the next tick does them again anyway.
 */
import {setTimeout as sleep} from 'node:timers/promises';
import type {protos, v2} from '@google-cloud/tpu';
import type {Tpu, TpuRequest, Tpus} from '../ports.ts';
import {clientOptionsFor} from './endpoint.ts';
import {isAlreadyExists, isContention, isNotFound, isTransient, tpuError} from './errors.ts';
import {lazily} from './lazily.ts';

const CALL = {timeout: 20_000, maxRetries: 0};
const READS = 4;
/** A stock-out shows in the operation that makes the node and not in the answer to the request, often within a second. */
const FAILS_FAST_MS = [300, 700, 1000];
const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';

type Client = InstanceType<typeof v2.TpuClient>;
type Names = {state: Record<number, string>; health: Record<number, string>};
type Opened = {client: Client; names: Names};
type Options = {
  project: string;
  /** Where the API is instead of Google's own address. */
  endpoint?: string | undefined;
  /** Who the nodes are; without it they are the Compute Engine default service account. */
  service_account?: string | undefined;
};

export function openTpus({project, endpoint, service_account}: Options): Tpus {
  const open = lazily(async (): Promise<Opened> => {
    const {v2, protos} = await import('@google-cloud/tpu');
    const {Node} = protos.google.cloud.tpu.v2;
    return {
      client: new v2.TpuClient({projectId: project, ...clientOptionsFor(endpoint)}),
      names: {state: Node.State, health: Node.Health},
    };
  });
  const parent = (zone: string): string => `projects/${project}/locations/${zone}`;
  const path = (name: string, zone: string): string => `${parent(zone)}/nodes/${name}`;
  return {
    async list() {
      const {client, names} = await open();
      const tpus: Tpu[] = [];
      const unreachable = new Set<string>();
      let pageToken = '';
      do {
        const request = {parent: parent('-'), pageSize: 500, pageToken};
        const [nodes, , page] = await repeating('list TPUs', 'all zones', () =>
          client.listNodes(request, {...CALL, autoPaginate: false}),
        );
        tpus.push(...nodes.map(node => tpuOf(node, names)));
        for (const place of page?.unreachable ?? []) unreachable.add(lastOf(place));
        pageToken = page?.nextPageToken ?? '';
      } while (pageToken);
      return {tpus, unreachable: [...unreachable]};
    },

    async create(request) {
      const opened = await open();
      const {name, zone} = request;
      try {
        const node = nodeFor(request, service_account);
        const [operation] = await opened.client.createNode({parent: parent(zone), nodeId: name, node}, CALL);
        await failFast(opened.client, operation.name ?? '');
        return 'started';
      } catch (error) {
        // Over REST, ALREADY_EXISTS arrives as 409, which this client takes for ABORTED.
        const taken =
          isAlreadyExists(error) || (isContention(error) && (await stateOf(opened, path(name, zone))));
        if (taken) return 'exists';
        throw tpuError(`create ${name}`, zone, error);
      }
    },

    async delete(name, zone) {
      const opened = await open();
      try {
        await opened.client.deleteNode({name: path(name, zone)}, CALL);
        return 'started';
      } catch (error) {
        if (isNotFound(error)) return 'absent';
        if ((await stateOf(opened, path(name, zone))) === 'DELETING') return 'started';
        throw tpuError(`delete ${name}`, zone, error);
      }
    },
  };
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
async function stateOf({client, names}: Opened, name: string): Promise<string | undefined> {
  try {
    const [{state}] = await client.getNode({name}, CALL);
    return wordOf(state, names.state) ?? 'STATE_UNSPECIFIED';
  } catch {
    return undefined;
  }
}

async function repeating<T>(what: string, zone: string, read: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++)
    try {
      return await read();
    } catch (error) {
      if (!isTransient(error) || attempt === READS) throw tpuError(what, zone, error);
      await sleep(200 * 2 ** attempt);
    }
}

function nodeFor(request: TpuRequest, service_account: string | undefined) {
  const {accelerator, runtime_version, spot, labels, metadata} = request;
  return {
    acceleratorType: accelerator,
    runtimeVersion: runtime_version,
    labels,
    metadata,
    ...(spot ? {schedulingConfig: {spot: true}} : {}),
    // The API's default is none, and then a node reaches neither its packages nor, without Private Google Access, the bucket.
    networkConfig: {enableExternalIps: true},
    ...(service_account ? {serviceAccount: {email: service_account, scope: [SCOPE]}} : {}),
  };
}

type Node = protos.google.cloud.tpu.v2.INode;

function tpuOf(node: Node, names: Names): Tpu {
  const [, , , zone = '', , name = ''] = (node.name ?? '').split('/');
  const {seconds = 0, nanos = 0} = node.createTime ?? {};
  return {
    name,
    zone,
    state: wordOf(node.state, names.state) ?? 'STATE_UNSPECIFIED',
    health: wordOf(node.health, names.health) ?? 'HEALTH_UNSPECIFIED',
    labels: {...node.labels},
    created_at: new Date(Number(seconds) * 1000 + Math.floor((nanos ?? 0) / 1e6)).toISOString(),
  };
}

/** gRPC gives enums as words, REST and operations as numbers; a number that is new to this client has no word. */
function wordOf(value: unknown, names: Record<number, string>): string | undefined {
  if (typeof value === 'string' && !/^\d+$/.test(value)) return value;
  return names[Number(value ?? 0)];
}

function lastOf(path: string): string {
  return path.split('/').at(-1) ?? path;
}
