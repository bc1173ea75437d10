import type {CloudDatabase} from './database.ts';

/** Resources of one kind, such as nodes, as rows of the database under their zones and names. */
export class Resources<T extends {zone: string; name: string}> {
  readonly #database: CloudDatabase;
  readonly #kind: string;

  constructor(database: CloudDatabase, kind: string) {
    this.#database = database;
    this.#kind = kind;
  }

  /** Resources of a zone, or of every zone for `-`. */
  list(zone = '-'): T[] {
    const sql = `SELECT value FROM resources WHERE kind = ? AND ? IN (zone, '-') ORDER BY zone, name`;
    return this.#database.all<{value: string}>(sql, this.#kind, zone).map(({value}) => JSON.parse(value));
  }

  find(zone: string, name: string): T | undefined {
    const sql = 'SELECT value FROM resources WHERE kind = ? AND zone = ? AND name = ?';
    const row = this.#database.get<{value: string}>(sql, this.#kind, zone, name);
    return row && JSON.parse(row.value);
  }

  insert(resource: T): void {
    const {zone, name} = resource;
    const values = [this.#kind, zone, name, JSON.stringify(resource)];
    this.#database.run('INSERT INTO resources VALUES (?, ?, ?, ?)', ...values);
  }

  /** Changes a resource that exists. */
  update(resource: T): void {
    const {zone, name} = resource;
    const sql = 'UPDATE resources SET value = ? WHERE kind = ? AND zone = ? AND name = ?';
    this.#database.run(sql, JSON.stringify(resource), this.#kind, zone, name);
  }

  delete({zone, name}: T): void {
    this.#database.run(
      'DELETE FROM resources WHERE kind = ? AND zone = ? AND name = ?',
      ...[this.#kind, zone, name],
    );
  }
}
