import {ApiError} from '../errors.ts';
import type {Faults} from '../faults.ts';
import type {Request, Route} from '../http.ts';
import {type JsonObject, readJson} from '../json.ts';
import {
  acceleratorTypes,
  healthNumbers,
  runtimeVersions,
  stateNumbers,
  wantsNumbers,
  zones,
} from './catalog.ts';
import type {Nodes, TpuNode} from './nodes.ts';
import {type Operation, operationResource} from './operations.ts';

const nodeType = 'type.googleapis.com/google.cloud.tpu.v2.Node';
const emptyType = 'type.googleapis.com/google.protobuf.Empty';

/** Cloud TPU's v2 REST API. */
export function tpuRoutes(nodes: Nodes, faults: Faults, project: string): Route[] {
  const at = '/v2/projects/{project}/locations';

  /** The zone of the request; `-` is all of them, where a list allows it. */
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
    };
  };

  const present = (operation: Operation, {query}: Request): JsonObject =>
    operationResource(operation, response => {
      if (operation.verb === 'delete') return {'@type': emptyType};
      const node = nodes.list(operation.zone).find(({name}) => name === response.node);
      const {apiVersion: _word, ...resource} = node ? nodeResource(node, query) : {name: operation.target};
      return {'@type': nodeType, ...resource};
    });

  const listNodes = (request: Request): JsonObject => {
    const zone = zoneOf(request, {all: true});
    const unreachable =
      zone === '-' ? zones.filter(name => faults.zone('unreachable', name) !== undefined) : [];
    const found = nodes.list(zone).filter(node => !unreachable.includes(node.zone));
    return {
      ...(found.length > 0 ? {nodes: found.map(node => nodeResource(node, request.query))} : {}),
      ...(unreachable.length > 0
        ? {unreachable: unreachable.map(name => `projects/${project}/locations/${name}`)}
        : {}),
    };
  };

  const location = (zone: string): JsonObject => ({
    name: `projects/${project}/locations/${zone}`,
    locationId: zone,
  });
  const catalogue = (plural: string, word: string, entries: string[]): Route[] => {
    const entry = (zone: string, name: string) => ({
      name: `projects/${project}/locations/${zone}/${plural}/${name}`,
      [word]: name,
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
    ['GET', `${at}/{zone}/nodes`, request => ({json: listNodes(request)})],
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
    // Queued resources are not part of the local cloud yet; there are none to list.
    ['GET', `${at}/{zone}/queuedResources`, request => ({json: zoneOf(request, {all: true}) ? {} : {}})],
    ...catalogue('acceleratorTypes', 'type', acceleratorTypes),
    ...catalogue('runtimeVersions', 'version', runtimeVersions),
  ];
}
