import type {Events, PubsubMessage} from '../functions/events.ts';
import {ApiError} from '../http/errors.ts';
import {isObject, type JsonObject} from '../http/json.ts';
import {optionalString, stringMap} from '../http/request-body.ts';
import type {CloudDatabase} from '../state/database.ts';

const limit_bytes = 10_000_000;

/** Topics, for the REST API and the gRPC API. */
export class Topics {
  readonly #database: CloudDatabase;
  readonly #events: Events;
  readonly #project: string;

  constructor(database: CloudDatabase, events: Events, project: string, names: string[]) {
    this.#database = database;
    this.#events = events;
    this.#project = project;
    for (const name of names) database.run('INSERT INTO topics VALUES (?) ON CONFLICT DO NOTHING', name);
  }

  list(project: string): JsonObject[] {
    this.#requireProject(project);
    const rows = this.#database.all<{name: string}>('SELECT name FROM topics ORDER BY name');
    return rows.map(({name}) => this.#resource(name));
  }

  get(path: string): JsonObject {
    return this.#resource(this.#require(path));
  }

  create(path: string): JsonObject {
    const name = this.#nameIn(path);
    if (!/^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$/.test(name) || name.startsWith('goog')) {
      throw new ApiError(400, `Invalid topic name: ${path}`);
    }
    const made = this.#database.run('INSERT INTO topics VALUES (?) ON CONFLICT DO NOTHING', name);
    if (made === 0) throw new ApiError(409, `Resource already exists in the project (resource=${name}).`);
    return this.#resource(name);
  }

  publish(path: string, messages: PubsubMessage[]): string[] {
    const name = this.#require(path);
    if (messages.length === 0 || messages.length > 1000) {
      throw new ApiError(
        400,
        `A publish request holds 1 to 1000 messages; this request holds ${messages.length}`,
      );
    }
    for (const message of messages) requireMessage(message);
    return this.#events.publish(name, messages);
  }

  #require(path: string): string {
    const name = this.#nameIn(path);
    if (!this.#database.get('SELECT 1 FROM topics WHERE name = ?', name)) {
      const known = this.#database.all<{name: string}>('SELECT name FROM topics ORDER BY name');
      const names = known.map(topic => topic.name).join(', ');
      throw new ApiError(
        404,
        `Resource not found (resource=${name}); the local cloud has the topics ${names}`,
      );
    }
    return name;
  }

  #nameIn(path: string): string {
    const [, project, name] = /^projects\/([^/]+)\/topics\/([^/]+)$/.exec(path) ?? [];
    if (project === undefined || name === undefined) {
      throw new ApiError(400, `Invalid topic: "${path}"; a topic is projects/PROJECT/topics/TOPIC`);
    }
    this.#requireProject(project);
    return name;
  }

  #requireProject(project: string): void {
    if (project !== this.#project) {
      throw new ApiError(404, `Project not found: ${project}; the local cloud's project is ${this.#project}`);
    }
  }

  #resource(name: string): JsonObject {
    return {name: `projects/${this.#project}/topics/${name}`};
  }
}

function requireMessage({data, attributes}: PubsubMessage): void {
  if (data === '' && Object.keys(attributes).length === 0) {
    throw new ApiError(
      400,
      'One or more messages in the publish request is empty: it has neither data nor attributes',
    );
  }
  if (data.length > (limit_bytes / 3) * 4) {
    throw new ApiError(
      400,
      `A message holds more than ${limit_bytes} bytes of data; store the data in the bucket and send the name of the object`,
    );
  }
}

/** Message of a REST request, whose data is base64. */
export function messageOf(json: unknown): PubsubMessage {
  if (!isObject(json)) throw new ApiError(400, 'Invalid message: it must be an object');
  const data = optionalString(json.data, 'data') ?? '';
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(data))
    throw new ApiError(400, 'Invalid value for data: it must be base64');
  const orderingKey = optionalString(json.orderingKey, 'orderingKey');
  return {
    data: Buffer.from(data, 'base64').toString('base64'),
    attributes: stringMap(json.attributes, 'attributes') ?? {},
    ...(orderingKey ? {orderingKey} : {}),
  };
}
