import type {CloudDatabase} from '../database.ts';
import type {JsonObject} from '../http/json.ts';
import type {QueueState} from './catalog.ts';
import type {QueuedSpec} from './spec.ts';

/** Queued resource of one node. */
export type QueuedResource = {
  zone: string;
  name: string;
  state: QueueState;
  /** Cause of the state: a request of the user, or the service itself. */
  initiator: 'USER' | 'SERVICE';
  /** A google.rpc.Status in the state FAILED, otherwise null. */
  error: JsonObject | null;
  spec: QueuedSpec;
  created_at: string;
  request_id: string;
  /** Name of the operation that creates the queued resource. */
  creation: string;
  /** Name of the operation that deletes the queued resource. */
  deletion: string | null;
  /** Time of the next step in milliseconds since 1970; null while the queued resource waits for its node or a request. */
  due_at: number | null;
};

type Row = Omit<QueuedResource, 'error' | 'spec'> & {error: string | null; resource: string};

/** Queued resources as rows of the database. */
export class QueuedResourceTable {
  readonly #database: CloudDatabase;

  constructor(database: CloudDatabase) {
    this.#database = database;
  }

  /** Queued resources of a zone, or of every zone for `-`. */
  list(zone: string): QueuedResource[] {
    const rows = this.#database.all<Row>(
      `SELECT * FROM queued_resources WHERE ? IN (zone, '-') ORDER BY zone, name`,
      zone,
    );
    return rows.map(fromRow);
  }

  find(zone: string, name: string): QueuedResource | undefined {
    const row = this.#database.get<Row>(
      'SELECT * FROM queued_resources WHERE zone = ? AND name = ?',
      zone,
      name,
    );
    return row && fromRow(row);
  }

  insert(queued: QueuedResource): void {
    const {zone, name, state, initiator, error, spec, created_at} = queued;
    this.#database.run(
      'INSERT INTO queued_resources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
      ...[zone, name, state, initiator, error && JSON.stringify(error), JSON.stringify(spec), created_at],
      ...[queued.request_id, queued.creation, queued.deletion, queued.due_at],
    );
  }

  /** Writes the fields that change during the life of a queued resource. */
  update({zone, name, state, initiator, error, deletion, due_at}: QueuedResource): void {
    this.#database.run(
      'UPDATE queued_resources SET state = ?, initiator = ?, error = ?, deletion = ?, due_at = ? WHERE zone = ? AND name = ?',
      ...[state, initiator, error && JSON.stringify(error), deletion, due_at],
      ...[zone, name],
    );
  }

  delete({zone, name}: QueuedResource): void {
    this.#database.run('DELETE FROM queued_resources WHERE zone = ? AND name = ?', zone, name);
  }
}

function fromRow({resource, error, ...row}: Row): QueuedResource {
  return {...row, spec: JSON.parse(resource) as QueuedSpec, error: error === null ? null : JSON.parse(error)};
}
