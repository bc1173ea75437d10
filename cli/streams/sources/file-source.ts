import {stat} from 'node:fs/promises';
import {CliError} from '../../terminal/errors.ts';
import {sha256Of} from '../hash-file.ts';
import type {Row, RowSource, SourceIdentity, Watch} from './row.ts';

/** Local file of rows. */
export abstract class FileSource implements RowSource {
  readonly name: string;
  abstract readonly unit: 'line' | 'row';

  constructor(name: string) {
    this.name = name;
  }

  abstract rows(watch: Watch, columns: readonly string[] | undefined): AsyncIterable<Row[]>;

  async identity(watch: Watch): Promise<SourceIdentity> {
    const found = await stat(this.name).catch((cause: Error) => {
      throw new CliError(`Failed to read ${this.name}: ${cause.message}`, {cause});
    });
    if (!found.isFile()) throw new CliError(`${this.name} is no regular file: copy its rows into a file`);
    const bytes = found.size;
    return {source: this.name, bytes, sha256: await sha256Of(this.name, watch.stop)};
  }

  async count(watch: Watch, most: number): Promise<number> {
    let found = 0;
    for await (const rows of this.rows(watch, [])) {
      found += rows.length;
      if (found >= most) return most;
    }
    return found;
  }
}
