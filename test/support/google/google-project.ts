/**
 * A project of Google Cloud on loopback. It refuses what Google's discovery documents do not have, in a request and in the answers that a test
 * gives, and keeps its resources, policies and operations. Objects are those of the emulator's Cloud Storage.
 */
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {neededApis} from '../../../cli/deploy/project.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {type Handle, type HttpServer, type Reply, router, serve} from '../../../emulator/http/http.ts';
import type {JsonObject} from '../../../emulator/http/json.ts';
import {readJson} from '../../../emulator/http/request-body.ts';
import {CloudDatabase} from '../../../emulator/state/database.ts';
import {openStorage} from '../../../emulator/storage/routes.ts';
import {type Method, openMethods, requestProblems, responseProblems} from './discovery.ts';

export const PROJECT = 'my-project-123';
export const NUMBER = '123';

/** `key`: the name of the resource. `id`: the last part of `key`, without a verb. */
type Call = {method: Method; key: string; id: string; query: URLSearchParams; body: JsonObject};

export class GoogleProject {
  /** APIs that are on, such as `pubsub`. A new project has some. */
  readonly apis = new Set(['serviceusage', 'storage', 'logging', 'monitoring']);
  /** Services with an account of their own. */
  readonly identities = new Set<string>();
  /** Resources by their names, such as `projects/P/topics/T` or `b/BUCKET`. */
  readonly resources = new Map<string, JsonObject>();
  /** Bindings by the name of the resource. */
  readonly policies = new Map<string, JsonObject[]>();
  /** Effective policies of the organization, by the constraint. Others allow all. */
  readonly constraints = new Map<string, JsonObject>();
  /** Locations that a service does not serve, such as `cloudscheduler us-south1`. */
  readonly unserved = new Set<string>();
  /** Answers by method and path, such as `GET /v1/x`, before the state. */
  readonly answers = new Map<string, JsonObject | ApiError>();
  readonly calls: string[] = [];
  /** Receives each message, and returns its id. */
  publish: (data: string) => Promise<string> = async () => '1';
  readonly #dir = mkdtempSync(join(tmpdir(), 'gleaner-google-'));
  readonly #database = new CloudDatabase(join(this.#dir, 'cloud.db'));
  readonly #storage = openStorage(this.#dir, this.#database, () => {});
  /** What each unfinished operation does at its end. */
  readonly #operations = new Map<string, () => JsonObject>();
  #server: HttpServer | undefined;
  #methods: readonly Method[] = [];
  #last = 0;

  async start(): Promise<this> {
    this.#methods = await openMethods();
    const objects = router(this.#storage.routes);
    const isObject = /^(\/(upload|download))?\/storage\/v1\/b\/[^/]+\/o|^\/batch\/|^\/b\/|^\/v1\/token$/;
    this.#server = await serve(
      async request => {
        const [, host, path = ''] = /^(?:\/(\w+)\.googleapis\.com)?(\/.*)$/.exec(request.path) ?? [];
        this.calls.push(`${request.method} ${path}`);
        if (isObject.test(path))
          return this.#given(`${request.method} ${path}`) ?? objects({...request, path});
        return this.#rest({...request, path}, host);
      },
      {port: 0, trouble: error => console.error(error)},
    );
    return this;
  }

  get url(): string {
    return this.#server?.url ?? '';
  }

  /** Turns on every API of a deployment, and makes the bucket of its state. */
  prepare(): void {
    for (const name of neededApis()) this.apis.add(name);
    this.makeBucket(`${PROJECT}-gleaner-terraform`);
  }

  makeBucket(name: string, fields: JsonObject = {versioning: {enabled: true}}): void {
    this.#storage.objects.makeBucket(name);
    this.resources.set(`b/${name}`, {name, location: 'US-CENTRAL1', ...fields});
  }

  async put(bucket: string, name: string, body: string | Uint8Array): Promise<void> {
    const query = new URLSearchParams({uploadType: 'media', name});
    const answer = await fetch(`${this.url}/upload/storage/v1/b/${bucket}/o?${query}`, {
      method: 'POST',
      body: body as string,
    });
    if (!answer.ok) throw new Error(await answer.text());
  }

  /** Text of an object; undefined for an absent one. */
  async text(bucket: string, name: string): Promise<string | undefined> {
    const answer = await fetch(`${this.url}/storage/v1/b/${bucket}/o/${encodeURIComponent(name)}?alt=media`);
    return answer.ok ? answer.text() : undefined;
  }

  async names(bucket: string): Promise<string[]> {
    const answer = await fetch(`${this.url}/storage/v1/b/${bucket}/o`);
    const {items = []} = (await answer.json()) as {items?: {name: string}[]};
    return items.map(({name}) => name);
  }

  async close(): Promise<void> {
    await this.#server?.close();
    this.#database.close();
    rmSync(this.#dir, {recursive: true, force: true});
  }

  #given(asked: string): Reply | undefined {
    const given = this.answers.get(asked);
    if (given instanceof ApiError) throw given;
    return given && {json: given};
  }

  async #rest(
    {method: verb, path, query, body}: Parameters<Handle>[0],
    host: string | undefined,
  ): Promise<Reply> {
    const found = this.#methods.filter(
      ({httpMethod, service, pattern}) =>
        httpMethod === verb && (host === undefined || service === host) && pattern.test(path),
    );
    const [method] = found;
    if (!method) throw new ApiError(404, `Method not found: ${verb} ${path}`);
    if (found.length > 1)
      throw new Error(`${verb} ${path} is of ${found.map(({id}) => id)}: call it by its host`);
    const text = verb === 'GET' || verb === 'DELETE' ? {} : await readJson(body);
    const [problem] = requestProblems(method, query, text);
    if (problem) throw new ApiError(400, problem);
    const key = decodeURIComponent(path.replace(/^(\/\w+)?\/v\d\w*\//, ''));
    const id = key.split('/').at(-1)?.split(':', 1)[0] ?? '';
    const reply = this.#given(`${verb} ${path}`) ?? {
      json: await this.#answer({method, key, id, query, body: text}),
    };
    const [wrong] = responseProblems(method, reply.json);
    if (wrong) throw new Error(`Google could not answer this to ${method.id}: ${wrong}`);
    return method.service === 'cloudscheduler'
      ? {...reply, json: shown(reply.json as JsonObject, query)}
      : reply;
  }

  async #answer(call: Call): Promise<JsonObject> {
    const {method, key} = call;
    this.#require(method.service);
    const special = this.#SPECIAL[method.id.replace('projects.locations.', 'projects.')];
    if (special) return special(call);
    const [resource = ''] = key.split(':', 1);
    switch (method.id.split('.').at(-1)) {
      case 'get':
        return key.includes('operations/') ? this.#finish(key) : this.#found(key);
      case 'list':
        return this.#list(call);
      case 'create':
      case 'insert':
        return this.#create(call);
      case 'patch':
        return this.#done(call, () => this.#put(key, {...this.#found(key), ...call.body}));
      case 'delete':
        this.#found(key);
        return this.#done(call, () => {
          this.resources.delete(key);
          return {};
        });
      case 'getFromFamily':
        return {family: call.id};
      case 'getIamPolicy':
        return {etag: 'ACAB', bindings: this.policies.get(resource) ?? []};
      case 'testIamPermissions':
        return {permissions: call.body.permissions};
      default:
        throw new ApiError(501, `The stand-in has no ${method.id}`);
    }
  }

  #require(service: string): void {
    if (this.apis.has(service)) return;
    throw new ApiError(
      403,
      `${service} API has not been used in project ${PROJECT} before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/${service}.googleapis.com/overview?project=${PROJECT} then retry.`,
    );
  }

  #put(key: string, resource: JsonObject): JsonObject {
    this.resources.set(key, resource);
    return resource;
  }

  #found(key: string): JsonObject {
    const found = this.resources.get(key);
    if (found) return found;
    throw new ApiError(
      404,
      key.startsWith('b/') ? 'The specified bucket does not exist.' : `Resource '${key}' was not found`,
    );
  }

  /** A location, or what is directly below the parent. */
  #list({method, key}: Call): JsonObject {
    if (method.id.endsWith('projects.locations.list')) {
      const served = ['us-central1', 'us-east5', 'us-south1', 'europe-west4', 'nam5', 'nam7', 'eur3'];
      const ids = served.filter(id => !this.unserved.has(`${method.service} ${id}`));
      return {locations: ids.map(locationId => ({locationId, name: `${key}/${locationId}`}))};
    }
    const below = [...this.resources].filter(([name]) => name.slice(0, name.lastIndexOf('/')) === key);
    return below.length > 0 ? {[key.split('/').at(-1) ?? '']: below.map(([, resource]) => resource)} : {};
  }

  #create(call: Call): JsonObject {
    const {key, query, body, method} = call;
    const [, given] = [...query].find(([name]) => /Id$/.test(name)) ?? [];
    const name =
      given ??
      String(body.name ?? `${++this.#last}`)
        .split('/')
        .at(-1);
    const full = `${key}/${name}`;
    if (this.resources.has(full))
      throw new ApiError(409, CONFLICTS[method.id] ?? `Resource '${full}' already exists`);
    if (key === 'b') this.makeBucket(String(name), body);
    return this.#done({method, key: full}, () =>
      this.#put(full, key === 'b' ? body : {...body, ...CREATED[method.id], name: full}),
    );
  }

  /** An operation, if the method answers one, which ends at the second look; otherwise the answer. */
  #done({method, key}: Pick<Call, 'method' | 'key'>, work: () => JsonObject): JsonObject {
    if (!/(^|[a-z])Operation$/.test(method.response?.$ref ?? '')) return work();
    const parent = /^projects\/[^/]+\/(locations|databases)\/[^/]+/.exec(key)?.[0];
    const name = `${parent ? `${parent}/` : ''}operations/${++this.#last}`;
    let looks = 0;
    let response: JsonObject | undefined;
    this.#operations.set(name, () => {
      if (++looks < 2) return {name};
      response ??= work();
      return {name, done: true, response};
    });
    return {name};
  }

  #finish(name: string): JsonObject {
    const operation = this.#operations.get(name);
    if (!operation) throw new ApiError(404, `Operation ${name} was not found`);
    return operation();
  }

  /** Methods that are no plain change of a resource. */
  readonly #SPECIAL: Record<string, (call: Call) => JsonObject | Promise<JsonObject>> = {
    'pubsub.projects.topics.publish': async ({key, body}) => {
      this.#found(key.split(':', 1)[0] ?? '');
      const messages = body.messages as {data: string}[];
      const sent = messages.map(({data}) => this.publish(Buffer.from(data, 'base64').toString()));
      return {messageIds: await Promise.all(sent)};
    },
    'serviceusage.services.list': ({query}) => {
      if (query.get('filter') !== 'state:ENABLED') throw new ApiError(400, 'The filter is not supported');
      // Two pages, as a list may have.
      const all = [...this.apis].sort();
      const half = Math.ceil(all.length / 2);
      const page = query.get('pageToken') ? all.slice(half) : all.slice(0, half);
      const services = page.map(name => ({
        name: `projects/${NUMBER}/services/${name}.googleapis.com`,
        ...{state: 'ENABLED', config: {name: `${name}.googleapis.com`}},
      }));
      return {services, ...(query.get('pageToken') ? {} : {nextPageToken: 'second'})};
    },
    'serviceusage.services.batchEnable': call => {
      const ids = call.body.serviceIds as string[];
      if (ids.length > 20) throw new ApiError(400, 'A batch has at most 20 services');
      return this.#done(call, () => {
        for (const id of ids) this.apis.add(id.replace('.googleapis.com', ''));
        return {};
      });
    },
    'serviceusage.services.generateServiceIdentity': ({id}) => {
      const service = id.replace('.googleapis.com', '');
      this.#require(service);
      this.identities.add(service);
      return {name: 'operations/finished.DONE_OPERATION', done: true, response: {}};
    },
    'cloudresourcemanager.projects.getEffectiveOrgPolicy': ({body: {constraint}}) => ({
      constraint,
      ...(this.constraints.get(String(constraint)) ?? {listPolicy: {allValues: 'ALLOW'}}),
    }),
    'orgpolicy.projects.policies.getEffectivePolicy': ({id}) => ({
      name: `projects/${NUMBER}/policies/${id}`,
      spec: {rules: [], ...this.constraints.get(id)},
    }),
    'iam.projects.roles.create': ({key, body}) => {
      const name = `${key}/${body.roleId}`;
      const known = this.resources.get(name);
      if (known?.deleted)
        throw new ApiError(
          400,
          `You can't create a role with role_id (${body.roleId}) where there is an existing role with that role_id in a deleted state.`,
        );
      if (known)
        throw new ApiError(409, `A role named ${body.roleId} in projects/${PROJECT} already exists.`);
      return this.#put(name, {...(body.role as JsonObject), name});
    },
    'iam.projects.roles.delete': ({key}) => this.#put(key, {...this.#found(key), deleted: true}),
    'iamcredentials.projects.serviceAccounts.generateAccessToken': () => ({accessToken: 'ya29.x'}),
    'cloudscheduler.projects.jobs.run': ({key}) => this.#found(key.slice(0, -4)),
    'cloudscheduler.projects.jobs.pause': call => this.#turn(call, 'ENABLED', 'PAUSED'),
    'cloudscheduler.projects.jobs.resume': call => this.#turn(call, 'PAUSED', 'ENABLED'),
  };

  #turn({key}: Call, from: string, to: string): JsonObject {
    const [name = ''] = key.split(':', 1);
    const job = this.#found(name);
    if (job.state !== from)
      throw new ApiError(400, `Job.state must be ${from} for this; it is ${job.state}`, {
        word: 'FAILED_PRECONDITION',
      });
    return this.#put(name, {...job, state: to});
  }
}

const JOB_STATES = ['STATE_UNSPECIFIED', 'ENABLED', 'PAUSED', 'DISABLED', 'UPDATE_FAILED'];

/** Google's clients ask for the numbers of enums, which the documents lack. */
function shown(job: JsonObject, query: URLSearchParams): JsonObject {
  const isNumber = query.get('$alt')?.includes('enum-encoding=int') === true;
  return isNumber && job.state ? {...job, state: JOB_STATES.indexOf(String(job.state))} : job;
}

const CONFLICTS: Record<string, string> = {
  'storage.buckets.insert':
    'Your previous request to create the named bucket succeeded and you already own it.',
  'firestore.projects.databases.create': 'Database already exists. Please use another database_id',
};

/** Fields that Google adds to a new resource. */
const CREATED: Record<string, JsonObject> = {
  'cloudfunctions.projects.locations.functions.create': {state: 'ACTIVE', environment: 'GEN_2'},
  'cloudscheduler.projects.locations.jobs.create': {state: 'ENABLED'},
};
