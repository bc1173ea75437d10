import {createHash} from 'node:crypto';
import {IMAGE_FAMILIES} from '../../shared/domain/fleet/accelerators.ts';
import {acceleratorOf, IMAGE_PROJECT} from '../../shared/domain/records/providers.ts';
import type {Faults} from '../faults.ts';
import {ApiError} from '../http/errors.ts';
import type {Request, Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {readJson} from '../http/request-body.ts';
import {batchRoute} from '../storage/batch.ts';
import {zones} from '../zones.ts';
import type {Instance} from './instance.ts';
import type {InstanceOperation, Instances} from './instances.ts';

const BASE = 'https://www.googleapis.com/compute/v1';
const MOST_RESULTS = 500;
const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** REST API of Compute Engine, version 1, for instances and their operations, alone and in a batch as gcloud sends them. */
export function computeRoutes(instances: Instances, faults: Faults, project: string): Route[] {
  const urlOf = (path: string) => `${BASE}/projects/${project}/${path}`;

  const requireProject = ({params}: Request): void => {
    if (params.project === project) return;
    throw new ApiError(403, `Required 'compute.instances.list' permission for 'projects/${params.project}'`);
  };

  const zoneOf = (request: Request): string => {
    requireProject(request);
    const {zone = ''} = request.params;
    if (!zones.includes(zone))
      throw new ApiError(404, `The resource 'projects/${project}/zones/${zone}' was not found`);
    if (faults.zone('unreachable', zone) !== undefined)
      throw new ApiError(503, `The service is currently unavailable in ${zone}`);
    return zone;
  };

  const instanceResource = (instance: Instance): JsonObject => {
    const {zone, name, id, status, spec, created_at} = instance;
    const {machine_type, labels, metadata, scheduling, email, network, disk} = spec;
    const items = Object.entries(metadata).map(([key, value]) => ({key, value}));
    return {
      kind: 'compute#instance',
      ...{id, name, status, labels, creationTimestamp: created_at, labelFingerprint: printOf(labels)},
      zone: urlOf(`zones/${zone}`),
      selfLink: urlOf(`zones/${zone}/instances/${name}`),
      machineType: urlOf(`zones/${zone}/machineTypes/${machine_type}`),
      metadata: {kind: 'compute#metadata', fingerprint: printOf(metadata), items},
      scheduling,
      disks: [
        {
          ...{
            kind: 'compute#attachedDisk',
            type: 'PERSISTENT',
            mode: 'READ_WRITE',
            boot: true,
            autoDelete: true,
          },
          ...{deviceName: 'persistent-disk-0', index: 0, diskSizeGb: String(disk.size_gb)},
          source: urlOf(`zones/${zone}/disks/${name}`),
        },
      ],
      networkInterfaces: [
        {kind: 'compute#networkInterface', name: 'nic0', networkIP: '127.0.0.1', ...network},
      ],
      serviceAccounts:
        email === '' ? [] : [{email, scopes: ['https://www.googleapis.com/auth/cloud-platform']}],
      startRestricted: false,
      deletionProtection: false,
    };
  };

  const operationResource = (operation: InstanceOperation): JsonObject => {
    const {name, zone, target, target_id, kind, created_at, ended_at, error} = operation;
    const failure = error === null ? undefined : JSON.parse(error);
    return {
      kind: 'compute#operation',
      ...{id: BigInt(`0x${printHex(name).slice(0, 15)}`).toString(), name, operationType: kind},
      zone: urlOf(`zones/${zone}`),
      selfLink: urlOf(`zones/${zone}/operations/${name}`),
      targetLink: urlOf(`zones/${zone}/instances/${target}`),
      targetId: target_id,
      ...{status: ended_at === null ? 'RUNNING' : 'DONE', progress: ended_at === null ? 0 : 100},
      ...{insertTime: created_at, startTime: created_at},
      ...(ended_at === null ? {} : {endTime: ended_at}),
      ...(failure
        ? {
            httpErrorStatusCode: failure.status,
            httpErrorMessage: failure.code.replaceAll('_', ' '),
            error: {errors: [{code: failure.code, message: failure.message}]},
          }
        : {}),
    };
  };

  const answer =
    (reply: (zone: string, request: Request) => JsonObject | Promise<JsonObject>): Route[2] =>
    async request => ({json: await reply(zoneOf(request), request)});

  /** A page of instances that the filter of the request lets through. */
  const pageOf = (all: Instance[], {query}: Request) => {
    const most = Number(query.get('maxResults') ?? MOST_RESULTS);
    if (!Number.isInteger(most) || most < 0 || most > MOST_RESULTS)
      throw new ApiError(
        400,
        `Invalid value for field 'maxResults': '${most}'. Must be from 0 to ${MOST_RESULTS}`,
      );
    const from = Number(query.get('pageToken') || 0);
    if (!Number.isInteger(from) || from < 0) throw new ApiError(400, "Invalid value for field 'pageToken'");
    const passing = all.filter(filterOf(query.get('filter') ?? ''));
    const end = from + (most || MOST_RESULTS);
    return {
      page: passing.slice(from, end),
      next: passing.length > end ? {nextPageToken: String(end)} : {},
    };
  };

  const aggregated = (request: Request): JsonObject => {
    const isUnreachable = (zone: string) => faults.zone('unreachable', zone) !== undefined;
    const {page, next} = pageOf(
      instances.list().filter(({zone}) => !isUnreachable(zone)),
      request,
    );
    const scopeOf = (zone: string): JsonObject => {
      const found = page.filter(instance => instance.zone === zone).map(instanceResource);
      if (found.length > 0) return {instances: found};
      const code = isUnreachable(zone) ? 'UNREACHABLE' : 'NO_RESULTS_ON_PAGE';
      return {
        warning: {code, message: `${code} for zones/${zone}`, data: [{key: 'scope', value: `zones/${zone}`}]},
      };
    };
    const unreachables = zones.filter(isUnreachable).map(zone => `projects/${project}/zones/${zone}`);
    return {
      kind: 'compute#instanceAggregatedList',
      id: `projects/${project}/aggregated/instances`,
      items: Object.fromEntries(zones.map(zone => [`zones/${zone}`, scopeOf(zone)])),
      ...(unreachables.length > 0 ? {unreachables} : {}),
      ...next,
    };
  };

  const at = '/compute/v1/projects/{project}/zones/{zone}';
  const routes: Route[] = [
    [
      'GET',
      '/compute/v1/projects/{project}/aggregated/instances',
      request => {
        requireProject(request);
        return {json: aggregated(request)};
      },
    ],
    [
      'GET',
      `${at}/instances`,
      answer((zone, request) => {
        const {page, next} = pageOf(instances.list(zone), request);
        return {kind: 'compute#instanceList', items: page.map(instanceResource), ...next};
      }),
    ],
    [
      'POST',
      `${at}/instances`,
      answer(async (zone, request) => {
        const id = request.query.get('requestId') ?? '';
        if (id !== '' && !REQUEST_ID.test(id))
          throw new ApiError(400, `Invalid value for field 'requestId': '${id}'`);
        return operationResource(instances.insert(zone, id, await readJson(request.body)));
      }),
    ],
    [
      'GET',
      `${at}/instances/{name}`,
      answer((zone, {params}) => instanceResource(instances.get(zone, params.name ?? ''))),
    ],
    [
      'DELETE',
      `${at}/instances/{name}`,
      answer(async (zone, {params}) => operationResource(await instances.delete(zone, params.name ?? ''))),
    ],
    [
      'GET',
      `${at}/operations/{name}`,
      answer((zone, {params}) => operationResource(instances.operation(zone, params.name ?? ''))),
    ],
    [
      'POST',
      `${at}/operations/{name}/wait`,
      answer(async (zone, {params, signal}) => {
        const name = params.name ?? '';
        // Google answers after two minutes at most; a caller asks again.
        for (const end = Date.now() + 120_000; Date.now() < end && !signal.aborted; ) {
          if (instances.operation(zone, name).ended_at !== null) break;
          await new Promise(resolve => setTimeout(resolve, 50));
        }
        return operationResource(instances.operation(zone, name));
      }),
    ],
  ];
  const catalogue: Route[] = [
    [
      'GET',
      `${at}/machineTypes/{name}`,
      answer((zone, {params: {name = ''}}) => {
        if (!acceleratorOf(name))
          throw new ApiError(
            404,
            `The resource 'projects/${project}/zones/${zone}/machineTypes/${name}' was not found`,
          );
        return {
          kind: 'compute#machineType',
          name,
          zone,
          selfLink: urlOf(`zones/${zone}/machineTypes/${name}`),
        };
      }),
    ],
    [
      'GET',
      '/compute/v1/projects/{owner}/global/images/family/{family}',
      ({params: {owner = '', family = ''}}) => {
        if (owner !== IMAGE_PROJECT || !IMAGE_FAMILIES.includes(family))
          throw new ApiError(
            404,
            `The resource 'projects/${owner}/global/images/family/${family}' was not found`,
          );
        return {
          json: {
            kind: 'compute#image',
            family,
            name: `${family}-v20261101`,
            status: 'READY',
            diskSizeGb: '10',
          },
        };
      },
    ],
  ];
  return [...routes, ...catalogue, batchRoute('/batch/compute/v1', routes)];
}

/** Filters that the local cloud knows: none, and one label with its value. */
function filterOf(filter: string): (instance: Instance) => boolean {
  if (filter === '') return () => true;
  const [, key, value] = /^labels\.([a-z][a-z0-9_-]{0,62}) ?= ?"?([a-z0-9_-]{0,63})"?$/.exec(filter) ?? [];
  if (key === undefined)
    throw new ApiError(
      400,
      `Invalid value for field 'filter': '${filter}'. The local cloud knows labels.KEY=VALUE`,
    );
  return ({spec}) => spec.labels[key] === value;
}

function printHex(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function printOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('base64').slice(0, 12);
}
