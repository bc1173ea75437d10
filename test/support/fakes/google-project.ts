/**
 * A project of Google Cloud on loopback, for the calls that the commands make to Google's REST APIs. It is as strict as Google: an API
 * that is off answers 403, and an unknown path 404. Cloud Storage is that of the emulator.
 */
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {neededApis} from '../../../cli/deploy/project.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {type HttpServer, type Route, router, serve} from '../../../emulator/http/http.ts';
import type {JsonObject} from '../../../emulator/http/json.ts';
import {readJson} from '../../../emulator/http/request-body.ts';
import {CloudDatabase} from '../../../emulator/state/database.ts';
import {openStorage} from '../../../emulator/storage/routes.ts';

export const PROJECT = 'my-project-123';

export class GoogleProject {
  /** APIs that are on, such as `pubsub`. A new project has some. */
  readonly apis = new Set(['serviceusage', 'storage', 'logging', 'monitoring']);
  /** Services with an account of their own. */
  readonly identities = new Set<string>();
  /** Buckets, and whether they keep versions. */
  readonly versions = new Map<string, boolean>();
  /** Answers by method and path, such as `GET /v1/x`, before the routes. */
  readonly answers = new Map<string, JsonObject | ApiError>();
  readonly calls: string[] = [];
  readonly #dir = mkdtempSync(join(tmpdir(), 'gleaner-google-'));
  readonly #database = new CloudDatabase(join(this.#dir, 'cloud.db'));
  readonly #storage = openStorage(this.#dir, this.#database, () => {});
  #server: HttpServer | undefined;
  #operations = 0;

  async start(routes: Route[] = []): Promise<this> {
    const answer = router([...routes, ...this.#routes(), ...this.#storage.routes]);
    this.#server = await serve(
      async request => {
        const asked = `${request.method} ${request.path}`;
        this.calls.push(asked);
        const given = this.answers.get(asked);
        if (given instanceof ApiError) throw given;
        return given === undefined ? answer(request) : {json: given};
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

  makeBucket(name: string, versioning = true): void {
    this.#storage.objects.makeBucket(name);
    this.versions.set(name, versioning);
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

  /** An operation that ends at the second look, as those of Service Usage mostly do. */
  #operation(): JsonObject {
    return {name: `operations/${++this.#operations}`};
  }

  #require(service: string): void {
    if (this.apis.has(service)) return;
    throw new ApiError(
      403,
      `${service} API has not been used in project ${PROJECT} before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/${service}.googleapis.com/overview?project=${PROJECT} then retry.`,
    );
  }

  #routes(): Route[] {
    const project = `/v1/projects/${PROJECT}`;
    return [
      [
        'GET',
        `${project}/services`,
        ({query}) => {
          if (query.get('filter') !== 'state:ENABLED') throw new ApiError(400, 'The filter is not supported');
          // Two pages, as a list may have.
          const all = [...this.apis].sort();
          const half = Math.ceil(all.length / 2);
          const page = query.get('pageToken') ? all.slice(half) : all.slice(0, half);
          const services = page.map(name => ({
            name: `projects/1/services/${name}.googleapis.com`,
            ...{state: 'ENABLED', config: {name: `${name}.googleapis.com`}},
          }));
          return {json: {services, ...(query.get('pageToken') ? {} : {nextPageToken: 'second'})}};
        },
      ],
      [
        'POST',
        `${project}/services:batchEnable`,
        async ({body}) => {
          const {serviceIds} = (await readJson(body)) as {serviceIds: string[]};
          if (serviceIds.length > 20) throw new ApiError(400, 'A batch has at most 20 services');
          for (const id of serviceIds) this.apis.add(id.replace('.googleapis.com', ''));
          return {json: this.#operation()};
        },
      ],
      [
        'GET',
        '/v1/operations/{id}',
        ({params}) => ({json: {name: `operations/${params.id}`, done: true, response: {}}}),
      ],
      [
        'POST',
        `/v1beta1/projects/${PROJECT}/services/{service}.googleapis.com:generateServiceIdentity`,
        ({params: {service = ''}}) => {
          this.#require(service);
          this.identities.add(service);
          return {json: {name: 'operations/finished.DONE_OPERATION', done: true, response: {}}};
        },
      ],
      [
        'POST',
        '/storage/v1/b',
        async ({body, query}) => {
          const {name, location, versioning, iamConfiguration} = await readJson(body);
          if (query.get('project') !== PROJECT) throw new ApiError(400, 'Required parameter: project');
          if (typeof name !== 'string' || typeof location !== 'string')
            throw new ApiError(400, 'Invalid argument.');
          this.makeBucket(name, (versioning as JsonObject | undefined)?.enabled === true);
          return {json: {name, location, ...(iamConfiguration ? {iamConfiguration} : {})}};
        },
      ],
      [
        'PATCH',
        '/storage/v1/b/{bucket}',
        async ({params: {bucket = ''}, body}) => {
          const {versioning} = await readJson(body);
          this.versions.set(bucket, (versioning as JsonObject | undefined)?.enabled === true);
          return {json: {name: bucket}};
        },
      ],
      [
        'GET',
        '/storage/v1/b/{bucket}',
        ({params: {bucket = ''}}) => {
          if (!this.versions.has(bucket)) throw new ApiError(404, 'The specified bucket does not exist.');
          const enabled = this.versions.get(bucket) === true;
          return {json: {name: bucket, location: 'US-CENTRAL1', ...(enabled ? {versioning: {enabled}} : {})}};
        },
      ],
    ];
  }
}
