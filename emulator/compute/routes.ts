import {hash} from 'node:crypto';
import {ApiError} from '../http/errors.ts';
import type {Request, Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {readJson} from '../http/request-body.ts';
import type {Faults} from '../state/faults.ts';
import {zones} from '../state/zones.ts';
import {batchRoute} from '../storage/batch.ts';
import type {Operation} from '../vm/operations.ts';
import type {Tpus} from '../vm/tpus.ts';
import {type ZoneRoutes, zoneOf, zoneRoutes} from '../vm/zone-routes.ts';
import {INSTANCES, type Instance} from './instance.ts';
import {type InstanceSpec, nameIn, parseInstance} from './spec.ts';

const BASE = 'https://www.googleapis.com/compute/v1';
const MOST_RESULTS = 500;
const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** REST API of Compute Engine, version 1, for instances and their operations, alone and in a batch as gcloud sends them. */
export class ComputeRoutes {
  readonly #instances: Tpus<InstanceSpec>;
  readonly #faults: Faults;
  readonly #project: string;

  constructor(instances: Tpus<InstanceSpec>, faults: Faults, project: string) {
    this.#instances = instances;
    this.#faults = faults;
    this.#project = project;
  }

  readonly #ofZone: ZoneRoutes = {
    'GET /instances compute.instances.list': (zone, _, request) => {
      const {page, next} = pageOf(this.#instances.list(zone), request);
      return {kind: 'compute#instanceList', items: page.map(each => this.#instance(each)), ...next};
    },
    'POST /instances compute.instances.create': async (zone, _, {query, body}) => {
      const id = query.get('requestId') ?? '';
      if (id !== '' && !REQUEST_ID.test(id))
        throw new ApiError(400, `Invalid value for field 'requestId': '${id}'`);
      const instance = await readJson(body);
      const name = nameIn(instance);
      return this.#operation(this.#instances.create(zone, name, parseInstance(zone, instance), id));
    },
    'GET /instances/{name} compute.instances.get': (zone, name) =>
      this.#instance(this.#instances.get(zone, name)),
    'DELETE /instances/{name} compute.instances.delete': async (zone, name) =>
      this.#operation(await this.#instances.delete(zone, name)),
    'GET /operations/{name} compute.zoneOperations.get': (zone, name) =>
      this.#operation(this.#found(zone, name)),
    'POST /operations/{name}/wait compute.zoneOperations.get': async (zone, name, {signal}) => {
      // Google answers after two minutes at most; the caller then asks again.
      for (const end = Date.now() + 120_000; Date.now() < end && !signal.aborted; ) {
        if (this.#found(zone, name).ended_at !== null) break;
        await new Promise(resolve => setTimeout(resolve, 50));
      }
      return this.#operation(this.#found(zone, name));
    },
  };

  routes(): Route[] {
    const of = '/compute/v1/projects/{project}';
    const aggregated: ZoneRoutes = {
      'GET /aggregated/instances compute.instances.list': (_zone, _name, request) =>
        this.#aggregated(request),
    };
    const routes = [
      ...zoneRoutes(of, aggregated, request => this.#requireProject(request)),
      ...zoneRoutes(`${of}/zones/{zone}`, this.#ofZone, request => {
        this.#requireProject(request);
        const path = `projects/${this.#project}/zones/${request.params.zone}`;
        return zoneOf(request, this.#faults, new ApiError(404, `The resource '${path}' was not found`));
      }),
    ];
    return [...routes, batchRoute('/batch/compute/v1', routes)];
  }

  #requireProject({params: {project, zone = ''}}: Request): string {
    if (project === this.#project) return zone;
    throw new ApiError(403, `Required 'compute.instances.list' permission for 'projects/${project}'`);
  }

  #found(zone: string, name: string): Operation {
    const found = this.#instances.operations.find(zone, name);
    if (found) return found;
    const path = `projects/${this.#project}/zones/${zone}/operations/${name}`;
    throw new ApiError(404, `The resource '${path}' was not found`);
  }

  #urlOf(path: string): string {
    return `${BASE}/projects/${this.#project}/${path}`;
  }

  #instance(instance: Instance): JsonObject {
    const {zone, name, id, state, spec, created_at} = instance;
    const {machine_type, labels, metadata, scheduling, email, network, disk} = spec;
    const items = Object.entries(metadata).map(([key, value]) => ({key, value}));
    return {
      kind: 'compute#instance',
      ...{id, name, status: INSTANCES.states[state], labels, labelFingerprint: printOf(labels)},
      creationTimestamp: created_at,
      zone: this.#urlOf(`zones/${zone}`),
      selfLink: this.#urlOf(`zones/${zone}/instances/${name}`),
      machineType: this.#urlOf(`zones/${zone}/machineTypes/${machine_type}`),
      metadata: {kind: 'compute#metadata', fingerprint: printOf(metadata), items},
      scheduling,
      disks: [
        {
          ...{kind: 'compute#attachedDisk', type: 'PERSISTENT', mode: 'READ_WRITE', boot: true},
          ...{autoDelete: true, deviceName: 'persistent-disk-0', index: 0, diskSizeGb: String(disk.size_gb)},
          source: this.#urlOf(`zones/${zone}/disks/${name}`),
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
  }

  #operation({name, zone, target, target_id, verb, created_at, ended_at, error}: Operation): JsonObject {
    const failure = error === null ? undefined : JSON.parse(error);
    return {
      kind: 'compute#operation',
      ...{
        id: BigInt(`0x${hash('sha256', name).slice(0, 15)}`).toString(),
        name,
        operationType: verb === 'create' ? 'insert' : verb,
      },
      zone: this.#urlOf(`zones/${zone}`),
      selfLink: this.#urlOf(`zones/${zone}/operations/${name}`),
      targetLink: this.#urlOf(`zones/${zone}/${target}`),
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
  }

  #aggregated(request: Request): JsonObject {
    const isUnreachable = (zone: string) => this.#faults.zone('unreachable', zone) !== undefined;
    const {page, next} = pageOf(
      this.#instances.list().filter(({zone}) => !isUnreachable(zone)),
      request,
    );
    const scopeOf = (zone: string): JsonObject => {
      const found = page.filter(instance => instance.zone === zone).map(each => this.#instance(each));
      if (found.length > 0) return {instances: found};
      const code = isUnreachable(zone) ? 'UNREACHABLE' : 'NO_RESULTS_ON_PAGE';
      return {
        warning: {code, message: `${code} for zones/${zone}`, data: [{key: 'scope', value: `zones/${zone}`}]},
      };
    };
    const unreachables = zones.filter(isUnreachable).map(zone => `projects/${this.#project}/zones/${zone}`);
    return {
      kind: 'compute#instanceAggregatedList',
      id: `projects/${this.#project}/aggregated/instances`,
      items: Object.fromEntries(zones.map(zone => [`zones/${zone}`, scopeOf(zone)])),
      ...(unreachables.length > 0 ? {unreachables} : {}),
      ...next,
    };
  }
}

/** A page of the instances that match the filter of the request. */
function pageOf(all: Instance[], {query}: Request) {
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
}

/** Filters that the local cloud supports: none, or one label with its value. */
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

function printOf(value: unknown): string {
  return hash('sha256', JSON.stringify(value), 'base64').slice(0, 12);
}
