import {randomUUID} from 'node:crypto';
import type {JsonObject} from '../http/json.ts';
import type {CloudDatabase} from '../state/database.ts';

export type Operation = {
  /** Last part of its path. */
  name: string;
  zone: string;
  /** Path of a resource below its zone, such as `nodes/NAME`. */
  target: string;
  target_id: string;
  verb: 'create' | 'delete';
  created_at: string;
  ended_at: string | null;
  /** Failure in the form of the API, as JSON. */
  error: string | null;
};

/** Long-running operations of one API. Finished operations stay in the database. */
export class Operations {
  readonly #database: CloudDatabase;
  readonly #api: string;

  constructor(database: CloudDatabase, api: 'tpu' | 'compute') {
    this.#database = database;
    this.#api = api;
  }

  begin(
    {zone, id}: {zone: string; id: string},
    target: string,
    verb: Operation['verb'],
    request_id = '',
  ): Operation {
    const created_at = new Date().toISOString();
    const begun = {name: `operation-${randomUUID()}`, zone, target, target_id: id, verb, created_at};
    this.#database.run(
      'INSERT INTO operations VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)',
      ...[this.#api, request_id, ...Object.values(begun)],
    );
    return {...begun, ended_at: null, error: null};
  }

  /** Ends the open operations of a verb on a resource. */
  end({id}: {id: string}, verb: Operation['verb'], failure?: JsonObject): void {
    this.#database.run(
      'UPDATE operations SET ended_at = ?, error = ? WHERE target_id = ? AND verb = ? AND ended_at IS NULL',
      ...[new Date().toISOString(), failure ? JSON.stringify(failure) : null, id, verb],
    );
  }

  find(zone: string, name: string): Operation | undefined {
    const sql = 'SELECT * FROM operations WHERE api = ? AND zone = ? AND name = ?';
    return this.#database.get(sql, this.#api, zone, name);
  }

  /** The newest operation of a verb on a resource. */
  last({id}: {id: string}, verb: Operation['verb']): Operation | undefined {
    const sql = 'SELECT * FROM operations WHERE target_id = ? AND verb = ? ORDER BY rowid DESC';
    return this.#database.get(sql, id, verb);
  }

  ofRequest(zone: string, request_id: string): Operation | undefined {
    const sql = "SELECT * FROM operations WHERE api = ? AND zone = ? AND request_id = ? AND request_id != ''";
    return this.#database.get(sql, this.#api, zone, request_id);
  }
}
