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
import type {TpuNode} from './node.ts';
import type {Nodes} from './nodes.ts';
import {type Operation, operationResource} from './operations.ts';
import type {Queue} from './queue.ts';
import type {QueuedResource} from './queued-resources.ts';

const nodeType = 'type.googleapis.com/google.cloud.tpu.v2.Node';
const queuedType = 'type.googleapis.com/google.cloud.tpu.v2.QueuedResource';
const emptyType = 'type.googleapis.com/google.protobuf.Empty';

/** REST API of Cloud TPU, version 2. */
export function tpuRoutes(nodes: Nodes, queue: Queue, faults: Faults, project: string): Route[] {
  const at = '/v2/projects/{project}/locations';

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
      networkEndpoints: isUp ? [{ipAddress: '127.0.0.1', port: 8470}] : [],
      apiVersion: 'V2_ALPHA1',
      ...(queued ? {queuedResource: queue.path(queued)} : {}),
    };
  };

  const queuedResource = (queued: QueuedResource, query: URLSearchParams): JsonObject => {
    const numbers = wantsNumbers(query);
    const {state, initiator, error, spec, zone, created_at} = queued;
    const parent = `projects/${project}/locations/${zone}`;
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

  const list = <T extends {zone: string}>(
    request: Request,
    key: string,
    {all, present}: {all: (zone: string) => T[]; present: (item: T, query: URLSearchParams) => JsonObject},
  ): JsonObject => {
    const zone = zoneOf(request, {all: true});
    const unreachable =
      zone === '-' ? zones.filter(name => faults.zone('unreachable', name) !== undefined) : [];
    const found = all(zone).filter(item => !unreachable.includes(item.zone));
    return {
      ...(found.length > 0 ? {[key]: found.map(item => present(item, request.query))} : {}),
      ...(unreachable.length > 0
        ? {unreachable: unreachable.map(name => `projects/${project}/locations/${name}`)}
        : {}),
    };
  };

  const location = (zone: string): JsonObject => ({
    name: `projects/${project}/locations/${zone}`,
    locationId: zone,
  });
  const catalogue = (plural: string, field: string, entries: string[]): Route[] => {
    const entry = (zone: string, name: string) => ({
      name: `projects/${project}/locations/${zone}/${plural}/${name}`,
      [field]: name,
    });
    return [
      [
        'GET',
        `${at}/{zone}/${plural}`,
        request => ({json: {[plural]: entries.map(name => entry(zoneOf(request), name))}}),
      ],
      [
        'GET',
        `${at}/{zone}/${plural}/{name}`,
        request => {
          const {name = ''} = request.params;
          if (!entries.includes(name))
            throw new ApiError(404, `There is no ${plural}/${name} in ${zoneOf(request)}`);
          return {json: entry(zoneOf(request), name)};
        },
      ],
    ];
  };

  return [
    ['GET', at, () => ({json: {locations: zones.map(location)}})],
    ['GET', `${at}/{zone}`, request => ({json: location(zoneOf(request))})],
    [
      'GET',
      `${at}/{zone}/nodes`,
      request => ({
        json: list(request, 'nodes', {all: zone => nodes.list(zone), present: nodeResource}),
      }),
    ],
    [
      'POST',
      `${at}/{zone}/nodes`,
      async request => {
        const zone = zoneOf(request);
        const body = await readJson(request.body);
        const name = request.query.get('nodeId') ?? '';
        return {json: present(nodes.create(zone, name, body), request)};
      },
    ],
    [
      'GET',
      `${at}/{zone}/nodes/{node}`,
      request => ({json: nodeResource(nodes.get(zoneOf(request), request.params.node ?? ''), request.query)}),
    ],
    [
      'DELETE',
      `${at}/{zone}/nodes/{node}`,
      async request => ({
        json: present(await nodes.delete(zoneOf(request), request.params.node ?? ''), request),
      }),
    ],
    [
      'GET',
      `${at}/{zone}/operations`,
      request => {
        const operations = nodes.operations.list(zoneOf(request, {all: true}));
        return {json: {operations: operations.map(operation => present(operation, request))}};
      },
    ],
    [
      'GET',
      `${at}/{zone}/operations/{operation}`,
      request => {
        const name = `projects/${project}/locations/${zoneOf(request)}/operations/${request.params.operation}`;
        return {json: present(nodes.operations.get(name), request)};
      },
    ],
    [
      'GET',
      `${at}/{zone}/queuedResources`,
      request => ({
        json: list(request, 'queuedResources', {all: zone => queue.list(zone), present: queuedResource}),
      }),
    ],
    [
      'POST',
      `${at}/{zone}/queuedResources`,
      async request => {
        const zone = zoneOf(request);
        const body = await readJson(request.body);
        const {query} = request;
        const [name, id] = [query.get('queuedResourceId') ?? '', query.get('requestId') ?? ''];
        return {json: present(queue.create(zone, name, id, body), request)};
      },
    ],
    [
      'GET',
      `${at}/{zone}/queuedResources/{name}`,
      request => ({
        json: queuedResource(queue.get(zoneOf(request), request.params.name ?? ''), request.query),
      }),
    ],
    [
      'DELETE',
      `${at}/{zone}/queuedResources/{name}`,
      async request => {
        // gcloud writes `True`.
        const force = request.query.get('force')?.toLowerCase() === 'true';
        return {
          json: present(queue.delete(zoneOf(request), request.params.name ?? '', force), request),
        };
      },
    ],
    ...catalogue('acceleratorTypes', 'type', acceleratorTypes),
    ...catalogue('runtimeVersions', 'version', runtimeVersions),
  ];
}
