import {asyncBufferFromFile} from 'hyparquet';
import {FileSource} from './file-source.ts';
import {openParquet, parquetRows, rowsIn} from './parquet.ts';
import type {Row, Watch} from './row.ts';

/** Local Parquet file. */
export class ParquetSource extends FileSource {
  readonly unit = 'row';

  override async count(_watch: Watch, most: number): Promise<number> {
    return Math.min(most, rowsIn(await this.#open()));
  }

  async *rows(watch: Watch, columns: readonly string[] | undefined): AsyncGenerator<Row[]> {
    yield* parquetRows(await this.#open(), watch, columns);
  }

  async #open() {
    return openParquet(this.name, await asyncBufferFromFile(this.name));
  }
}
