/** CSV files with a header line, and files of tabs. */
import {Readable} from 'node:stream';
import {parse} from 'csv-parse';
import {CliError} from '../../terminal/errors.ts';
import {bytesOf, FileSource} from './file-source.ts';
import {isTabbed} from './formats.ts';
import type {Row, Watch} from './row.ts';

const BATCH_ROWS = 1000;

/** Every value is text, as it is between its quotes. */
export class CsvFile extends FileSource {
  readonly unit = 'row';

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    const parser = parse({
      columns: (header: string[]) => this.#columns(header),
      delimiter: isTabbed(this.name) ? '\t' : ',',
      skip_empty_lines: true,
    });
    const input = Readable.from(this.#text(watch));
    input.on('error', error => parser.destroy(error));
    input.pipe(parser);
    let rows: Row[] = [];
    let at = 0;
    try {
      for await (const record of parser) {
        rows.push({at: ++at, record});
        if (rows.length < BATCH_ROWS) continue;
        yield rows;
        rows = [];
      }
    } catch (error) {
      watch.stop.throwIfAborted();
      if (error instanceof CliError) throw error;
      throw new CliError(`${this.name} is not CSV: ${(error as Error).message}`, {cause: error});
    } finally {
      input.destroy();
      parser.destroy();
    }
    yield rows;
  }

  #columns(header: string[]): string[] {
    const twice = header.find((name, index) => header.indexOf(name) !== index);
    if (twice !== undefined)
      throw new CliError(`${this.name} has the column "${twice}" twice: rename one of them`);
    return header;
  }

  async *#text(watch: Watch): AsyncGenerator<string> {
    // Removes the byte-order mark, and throws for bytes that are no UTF-8.
    const decoder = new TextDecoder('utf-8', {fatal: true});
    try {
      for await (const chunk of bytesOf(this.name, watch)) yield decoder.decode(chunk, {stream: true});
      yield decoder.decode();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw new CliError(`${this.name} is not UTF-8 text: convert it to UTF-8, or name its --format`, {
        cause: error,
      });
    }
  }
}
