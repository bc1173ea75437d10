import {ApiError} from '../http/errors.ts';
import type {Request, Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {readJson} from '../http/request-body.ts';
import type {Faults} from '../state/faults.ts';
import {zones} from '../state/zones.ts';
import type {Operation} from '../vm/operations.ts';
import type {Tpus} from '../vm/tpus.ts';
import {type ZoneRoutes, zoneOf, zoneRoutes} from '../vm/zone-routes.ts';
import {
  acceleratorTypes,
  healthNumbers,
  initiatorNumbers,
  queueNumbers,
  runtimeVersions,
  stateNumbers,
  wantsNumbers,
} from './catalog.ts';
import {addressesOf, NODES, type TpuNode} from './node.ts';
import type {Queue, QueuedResource} from './queue.ts';
import {type NodeSpec, parseNode} from './spec.ts';

const TYPES = 'type.googleapis.com/google.cloud.tpu.v2';

/** REST API of Cloud TPU, version 2. */
export class TpuRoutes {
  readonly #nodes: Tpus<NodeSpec>;
  readonly #queue: Queue;
  readonly #faults: Faults;
  readonly #project: string;

  constructor(nodes: Tpus<NodeSpec>, queue: Queue, faults: Faults, project: string) {
    this.#nodes = nodes;
    this.#queue = queue;
    this.#faults = faults;
    this.#project = project;
  }

  // Cloud TPU has no permissions for queued resources; their methods need those for nodes.
  readonly #ofZone: ZoneRoutes = {
    'POST /nodes tpu.nodes.create': async (zone, _, request) => {
      const name = request.query.get('nodeId') ?? '';
      const spec = parseNode(name, await readJson(request.body));
      return this.#operation(this.#nodes.create(zone, name, spec), request);
    },
    'GET /nodes/{name} tpu.nodes.get': (zone, name, request) =>
      this.#node(this.#nodes.get(zone, name), request),
    'DELETE /nodes/{name} tpu.nodes.delete': async (zone, name, request) =>
      this.#operation(await this.#nodes.delete(zone, name), request),
    'GET /operations/{name} tpu.operations.get': (zone, name, request) => {
      const found = this.#nodes.operations.find(zone, name);
      if (found) return this.#operation(found, request);
      throw new ApiError(404, `Operation not found: ${this.#inZone(zone, `/operations/${name}`)}`);
    },
    'POST /queuedResources tpu.nodes.create': async (zone, _, request) => {
      const {query} = request;
      const [name, id] = [query.get('queuedResourceId') ?? '', query.get('requestId') ?? ''];
      return this.#operation(this.#queue.create(zone, name, id, await readJson(request.body)), request);
    },
    'GET /queuedResources/{name} tpu.nodes.get': (zone, name, request) =>
      this.#queued(this.#queue.get(zone, name), request),
    'DELETE /queuedResources/{name} tpu.nodes.delete': (zone, name, request) => {
      // gcloud writes `True`.
      const force = request.query.get('force')?.toLowerCase() === 'true';
      return this.#operation(this.#queue.delete(zone, name, force), request);
    },
  };

  /** Lists, for which the zone `-` means every zone. */
  readonly #ofZones: ZoneRoutes = {
    'GET /nodes tpu.nodes.list': (zone, _, request) =>
      this.#listed('nodes', zone, this.#nodes.list(zone), node => this.#node(node, request)),
    'GET /queuedResources tpu.nodes.list': (zone, _, request) =>
      this.#listed('queuedResources', zone, this.#queue.list(zone), each => this.#queued(each, request)),
  };

  routes(): Route[] {
    const at = '/v2/projects/{project}/locations/{zone}';
    return [
      ...zoneRoutes(at, this.#ofZones, request => this.#zoneOf(request, request.params.zone === '-')),
      ...zoneRoutes(at, {...this.#ofZone, ...this.#offers()}, request => this.#zoneOf(request, false)),
    ];
  }

  /** The types and runtime versions that every zone offers. */
  #offers(): ZoneRoutes {
    const kinds = [
      ['acceleratorTypes', 'type', acceleratorTypes],
      ['runtimeVersions', 'version', runtimeVersions],
    ] as const;
    const routes: ZoneRoutes = {};
    for (const [plural, field, names] of kinds) {
      const offer = (zone: string, name: string) => ({
        name: this.#inZone(zone, `/${plural}/${name}`),
        [field]: name,
      });
      routes[`GET /${plural} tpu.locations`] = zone => ({[plural]: names.map(name => offer(zone, name))});
      routes[`GET /${plural}/{name} tpu.locations`] = (zone, name) => {
        if (!names.includes(name)) throw new ApiError(404, `There is no ${plural}/${name} in ${zone}`);
        return offer(zone, name);
      };
    }
    return routes;
  }

  #zoneOf(request: Request, isEvery: boolean): string {
    const {project, zone = ''} = request.params;
    if (project !== this.#project)
      throw new ApiError(403, `Permission denied on resource project ${project}`);
    const unknown = new ApiError(403, `Permission denied on 'locations/${zone}' (or it may not exist)`);
    return isEvery ? zone : zoneOf(request, this.#faults, unknown);
  }

  #inZone(zone: string, path = ''): string {
    return `projects/${this.#project}/locations/${zone}${path}`;
  }

  #node(node: TpuNode, {query}: Request): JsonObject {
    const numbers = wantsNumbers(query);
    const {created_at, id, spec} = node;
    const state = NODES.states[node.state] as keyof typeof stateNumbers;
    const isUp = state === 'READY';
    const queued = this.#queue.of(node);
    const network = {network: 'default', subnetwork: 'default', enableExternalIps: false};
    return {
      name: this.#nodes.path(node),
      id,
      ...spec,
      state: numbers ? stateNumbers[state] : state,
      ...(isUp ? {health: numbers ? healthNumbers.HEALTHY : 'HEALTHY'} : {}),
      createTime: created_at,
      networkConfig: {...network, ...spec.networkConfig},
      networkEndpoints: isUp ? addressesOf(node).map(ipAddress => ({ipAddress, port: 8470})) : [],
      apiVersion: 'V2_ALPHA1',
      ...(queued ? {queuedResource: this.#queue.path(queued)} : {}),
    };
  }

  #queued(queued: QueuedResource, {query}: Request): JsonObject {
    const numbers = wantsNumbers(query);
    const {state, initiator, error, spec, zone, created_at} = queued;
    return {
      name: this.#queue.path(queued),
      createTime: created_at,
      tpu: {nodeSpec: [{parent: this.#inZone(zone), nodeId: spec.node_id, node: spec.node}]},
      ...spec.shown,
      state: {
        state: numbers ? queueNumbers[state] : state,
        stateInitiator: numbers ? initiatorNumbers[initiator] : initiator,
        ...(error ? {failedData: {error}} : {}),
      },
    };
  }

  #operation(operation: Operation, request: Request): JsonObject {
    const {name, zone, target, verb, created_at, ended_at, error} = operation;
    return {
      name: this.#inZone(zone, `/operations/${name}`),
      metadata: {
        '@type': `${TYPES}.OperationMetadata`,
        createTime: created_at,
        ...(ended_at === null ? {} : {endTime: ended_at}),
        target: this.#inZone(zone, `/${target}`),
        verb,
        cancelRequested: false,
        apiVersion: 'v2',
      },
      done: ended_at !== null,
      ...(error === null ? {} : {error: JSON.parse(error) as JsonObject}),
      ...(ended_at === null || error !== null ? {} : {response: this.#response(operation, request)}),
    };
  }

  #response({zone, target, target_id, verb}: Operation, request: Request): JsonObject {
    if (verb === 'delete') return {'@type': 'type.googleapis.com/google.protobuf.Empty'};
    const isMade = (each: {id: string}) => each.id === target_id;
    const gone: JsonObject = {name: this.#inZone(zone, `/${target}`)};
    if (target.startsWith('queuedResources/')) {
      const made = this.#queue.list(zone).find(isMade);
      return {'@type': `${TYPES}.QueuedResource`, ...(made ? this.#queued(made, request) : gone)};
    }
    const made = this.#nodes.list(zone).find(isMade);
    const {apiVersion: _version, ...resource} = made ? this.#node(made, request) : gone;
    return {'@type': `${TYPES}.Node`, ...resource};
  }

  /** A list of one zone, or of every reachable zone if the zone is `-`. */
  #listed<T extends {zone: string}>(
    key: string,
    zone: string,
    items: T[],
    present: (item: T) => JsonObject,
  ): JsonObject {
    const isUnreachable = (name: string) =>
      zone === '-' && this.#faults.zone('unreachable', name) !== undefined;
    const reachable = items.filter(item => !isUnreachable(item.zone));
    const unreachable = zones.filter(isUnreachable).map(name => this.#inZone(name));
    return {
      ...(reachable.length > 0 ? {[key]: reachable.map(present)} : {}),
      ...(unreachable.length > 0 ? {unreachable} : {}),
    };
  }
}
