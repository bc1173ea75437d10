import {randomUUID} from 'node:crypto';
import type {CloudDatabase} from '../database.ts';
import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';

export type Operation = {
  name: string;
  zone: string;
  target: string;
  verb: 'create' | 'delete';
  created_at: string;
  ended_at: string | null;
  error: string | null;
  response: string | null;
};

/** Long-running operations of Cloud TPU. A finished operation stays in the database. */
export class Operations {
  readonly #database: CloudDatabase;
  readonly #project: string;

  constructor(database: CloudDatabase, project: string) {
    this.#database = database;
    this.#project = project;
  }

  begin(zone: string, target: string, verb: Operation['verb']): Operation {
    const name = `projects/${this.#project}/locations/${zone}/operations/operation-${randomUUID()}`;
    this.#database.run(
      'INSERT INTO operations VALUES (?, ?, ?, ?, ?, NULL, NULL, NULL)',
      ...[name, zone, target, verb, new Date().toISOString()],
    );
    return this.get(name);
  }

  succeed(name: string, response: JsonObject): void {
    this.#end(name, null, JSON.stringify(response));
  }

  fail(name: string, code: number, message: string): void {
    this.#end(name, JSON.stringify({code, message}), null);
  }

  #end(name: string, error: string | null, response: string | null): void {
    this.#database.run(
      'UPDATE operations SET ended_at = ?, error = ?, response = ? WHERE name = ? AND ended_at IS NULL',
      ...[new Date().toISOString(), error, response, name],
    );
  }

  get(name: string): Operation {
    const found = this.#database.get<Operation>('SELECT * FROM operations WHERE name = ?', name);
    if (!found) throw new ApiError(404, `Operation not found: ${name}`);
    return found;
  }

  list(zone: string): Operation[] {
    return this.#database.all(
      `SELECT * FROM operations WHERE ? IN (zone, '-') ORDER BY created_at DESC LIMIT 500`,
      zone,
    );
  }
}

/** Operation in the form of the API. `present` turns the stored response into the resource for the client. */
export function operationResource(
  operation: Operation,
  present: (response: JsonObject) => JsonObject,
): JsonObject {
  const {name, target, verb, created_at, ended_at, error, response} = operation;
  return {
    name,
    metadata: {
      '@type': 'type.googleapis.com/google.cloud.tpu.v2.OperationMetadata',
      createTime: created_at,
      ...(ended_at === null ? {} : {endTime: ended_at}),
      target,
      verb,
      cancelRequested: false,
      apiVersion: 'v2',
    },
    done: ended_at !== null,
    ...(error === null ? {} : {error: JSON.parse(error) as JsonObject}),
    ...(response === null ? {} : {response: present(JSON.parse(response) as JsonObject)}),
  };
}
