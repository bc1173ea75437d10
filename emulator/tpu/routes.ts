import type {Faults} from '../faults.ts';
import {ApiError} from '../http/errors.ts';
import type {Request, Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {readJson} from '../http/request-body.ts';
import {zones} from '../zones.ts';
import {
  acceleratorTypes,
  healthNumbers,
  initiatorNumbers,
  queueNumbers,
  runtimeVersions,
  stateNumbers,
  wantsNumbers,
} from './catalog.ts';
import {addressesOf, type TpuNode} from './node.ts';
import type {Nodes} from './nodes.ts';
import {type Operation, operationResource} from './operations.ts';
import type {Queue} from './queue.ts';
import type {QueuedResource} from './queued-resources.ts';

const nodeType = 'type.googleapis.com/google.cloud.tpu.v2.Node';
const queuedType = 'type.googleapis.com/google.cloud.tpu.v2.QueuedResource';
const emptyType = 'type.googleapis.com/google.protobuf.Empty';

/** A route below a zone: what it answers for the checked zone. */
type Row = [
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  answer: (zone: string, request: Request) => JsonObject | Promise<JsonObject>,
];

/** REST API of Cloud TPU, version 2. */
export function tpuRoutes(nodes: Nodes, queue: Queue, faults: Faults, project: string): Route[] {
  const at = '/v2/projects/{project}/locations';
  const inProject = (zone: string, path = '') => `projects/${project}/locations/${zone}${path}`;

  /** Zone of a request. With `all`, `-` stands for every zone. */
  const zoneOf = ({params}: Request, options: {all?: boolean} = {}): string => {
    const {project: asked, zone = ''} = params;
    if (asked !== project) throw new ApiError(403, `Permission denied on resource project ${asked}`);
    if (options.all && zone === '-') return zone;
    if (!zones.includes(zone))
      throw new ApiError(403, `Permission denied on 'locations/${zone}' (or it may not exist)`);
    if (faults.zone('unreachable', zone) !== undefined) {
      throw new ApiError(503, `The service is currently unavailable in ${zone}`);
    }
    return zone;
  };

  const nodeResource = (node: TpuNode, query: URLSearchParams): JsonObject => {
    const numbers = wantsNumbers(query);
    const {state, created_at, id, spec} = node;
    const isUp = state === 'READY';
    const queued = queue.of(node);
    return {
      name: nodes.path(node),
      id,
      ...spec,
      state: numbers ? stateNumbers[state] : state,
      ...(isUp ? {health: numbers ? healthNumbers.HEALTHY : 'HEALTHY'} : {}),
      createTime: created_at,
      networkConfig: {
        network: 'default',
        subnetwork: 'default',
        enableExternalIps: false,
        ...spec.networkConfig,
      },
      networkEndpoints: isUp ? addressesOf(node).map(ipAddress => ({ipAddress, port: 8470})) : [],
      apiVersion: 'V2_ALPHA1',
      ...(queued ? {queuedResource: queue.path(queued)} : {}),
    };
  };

  const queuedResource = (queued: QueuedResource, query: URLSearchParams): JsonObject => {
    const numbers = wantsNumbers(query);
    const {state, initiator, error, spec, zone, created_at} = queued;
    const parent = inProject(zone);
    return {
      name: queue.path(queued),
      createTime: created_at,
      tpu: {nodeSpec: [{parent, nodeId: spec.node_id, node: spec.node}]},
      ...spec.shown,
      state: {
        state: numbers ? queueNumbers[state] : state,
        stateInitiator: numbers ? initiatorNumbers[initiator] : initiator,
        ...(error ? {failedData: {error}} : {}),
      },
    };
  };

  const present = (operation: Operation, {query}: Request): JsonObject =>
    operationResource(operation, response => {
      if (operation.verb === 'delete') return {'@type': emptyType};
      if (response.queued !== undefined) {
        const made = queue.list(operation.zone).find(({name}) => name === response.queued);
        return {'@type': queuedType, ...(made ? queuedResource(made, query) : {name: operation.target})};
      }
      const node = nodes.list(operation.zone).find(({name}) => name === response.node);
      const {apiVersion: _version, ...resource} = node ? nodeResource(node, query) : {name: operation.target};
      return {'@type': nodeType, ...resource};
    });

  /** A list of one zone, or of every reachable zone where the zone is `-`. */
  const listed = <T extends {zone: string}>(
    key: string,
    zone: string,
    items: T[],
    presentItem: (item: T) => JsonObject,
  ): JsonObject => {
    const isUnreachable = (name: string) => zone === '-' && faults.zone('unreachable', name) !== undefined;
    const reachable = items.filter(item => !isUnreachable(item.zone));
    const unreachable = zones.filter(isUnreachable).map(name => inProject(name));
    return {
      ...(reachable.length > 0 ? {[key]: reachable.map(presentItem)} : {}),
      ...(unreachable.length > 0 ? {unreachable} : {}),
    };
  };

  const location = (zone: string): JsonObject => ({name: inProject(zone), locationId: zone});

  /** A list of names that every zone has, such as `acceleratorTypes`. */
  const catalogue = (plural: string, field: string, entries: string[]): Row[] => {
    const entry = (zone: string, name: string) => ({
      name: inProject(zone, `/${plural}/${name}`),
      [field]: name,
    });
    return [
      ['GET', `/${plural}`, zone => ({[plural]: entries.map(name => entry(zone, name))})],
      [
        'GET',
        `/${plural}/{name}`,
        (zone, {params: {name = ''}}) => {
          if (!entries.includes(name)) throw new ApiError(404, `There is no ${plural}/${name} in ${zone}`);
          return entry(zone, name);
        },
      ],
    ];
  };

  const inZone: Row[] = [
    ['GET', '', location],
    [
      'POST',
      '/nodes',
      async (zone, request) => {
        const body = await readJson(request.body);
        return present(nodes.create(zone, request.query.get('nodeId') ?? '', body), request);
      },
    ],
    [
      'GET',
      '/nodes/{name}',
      (zone, {params, query}) => nodeResource(nodes.get(zone, params.name ?? ''), query),
    ],
    [
      'DELETE',
      '/nodes/{name}',
      async (zone, request) => present(await nodes.delete(zone, request.params.name ?? ''), request),
    ],
    [
      'GET',
      '/operations/{name}',
      (zone, request) =>
        present(nodes.operations.get(inProject(zone, `/operations/${request.params.name}`)), request),
    ],
    [
      'POST',
      '/queuedResources',
      async (zone, request) => {
        const {query} = request;
        const [name, id] = [query.get('queuedResourceId') ?? '', query.get('requestId') ?? ''];
        return present(queue.create(zone, name, id, await readJson(request.body)), request);
      },
    ],
    [
      'GET',
      '/queuedResources/{name}',
      (zone, {params, query}) => queuedResource(queue.get(zone, params.name ?? ''), query),
    ],
    [
      'DELETE',
      '/queuedResources/{name}',
      (zone, request) => {
        // gcloud writes `True`.
        const force = request.query.get('force')?.toLowerCase() === 'true';
        return present(queue.delete(zone, request.params.name ?? '', force), request);
      },
    ],
    ...catalogue('acceleratorTypes', 'type', acceleratorTypes),
    ...catalogue('runtimeVersions', 'version', runtimeVersions),
  ];

  const inAnyZone: Row[] = [
    [
      'GET',
      '/nodes',
      (zone, {query}) => listed('nodes', zone, nodes.list(zone), node => nodeResource(node, query)),
    ],
    [
      'GET',
      '/operations',
      (zone, request) => ({operations: nodes.operations.list(zone).map(each => present(each, request))}),
    ],
    [
      'GET',
      '/queuedResources',
      (zone, {query}) =>
        listed('queuedResources', zone, queue.list(zone), each => queuedResource(each, query)),
    ],
  ];

  const routesOf = (rows: Row[], options?: {all: boolean}): Route[] =>
    rows.map(([method, path, answer]) => [
      method,
      `${at}/{zone}${path}`,
      async request => ({json: await answer(zoneOf(request, options), request)}),
    ]);

  return [
    ['GET', at, () => ({json: {locations: zones.map(location)}})],
    ...routesOf(inAnyZone, {all: true}),
    ...routesOf(inZone),
  ];
}
