/** CSV files with a header line, and files of tabs. */
import {Readable} from 'node:stream';
import {parse} from 'csv-parse';
import {CliError} from '../../../client/text/errors.ts';
import {findDelimiter, LINE_ENDS, loneReturn, nameOf} from './csv-layout.ts';
import {bytesOf, FileSource, tooLong} from './file-source.ts';
import {type Row, requireUnique, type Watch} from './row.ts';

const BATCH_ROWS = 1000;

/** Every value is text, as it is between its quotes. */
export class CsvFile extends FileSource {
  readonly unit = 'row';
  readonly #delimiter: string | undefined;

  /** `delimiter`: the character between two columns. It is found where it is undefined. */
  constructor(name: string, delimiter: string | undefined, most_row_bytes?: number) {
    super(name, most_row_bytes);
    this.#delimiter = delimiter;
  }

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    const delimiter = await findDelimiter(this.name, this.#delimiter);
    const parser = parse({
      delimiter,
      record_delimiter: LINE_ENDS,
      skip_empty_lines: true,
      max_record_size: this.most_row_bytes,
      cast: (value, {quoting, lines}) => {
        if (quoting || !value.includes('\r')) return value;
        throw loneReturn(`${this.name}, line ${lines},`);
      },
    });
    const input = Readable.from(this.#text(watch));
    input.on('error', error => parser.destroy(error));
    input.pipe(parser);
    let columns: string[] | undefined;
    let rows: Row[] = [];
    let at = 0;
    try {
      for await (const values of parser as AsyncIterable<string[]>) {
        if (columns === undefined) {
          columns = this.#columns(values);
          continue;
        }
        const cells = new Map<string, string>();
        for (const [index, column] of columns.entries()) cells.set(column, values[index] as string);
        rows.push({at: ++at, cells});
        if (rows.length < BATCH_ROWS) continue;
        yield rows;
        rows = [];
      }
    } catch (error) {
      watch.stop.throwIfAborted();
      if (error instanceof CliError) throw error;
      if ((error as {code?: string}).code === 'CSV_MAX_RECORD_SIZE')
        throw tooLong(this.name, this.unit, at, this.most_row_bytes);
      throw new CliError(
        `${this.name} is not CSV with ${nameOf(delimiter)} between columns: ${(error as Error).message.slice(0, 300)}; put a value with the delimiter, a quote or a line break inside between double quotes, and each quote inside twice, or name another --delimiter or --format`,
        {cause: error},
      );
    } finally {
      input.destroy();
      parser.destroy();
    }
    yield rows;
  }

  #columns(header: string[]): string[] {
    // UTF-16 without a mark is valid UTF-8 with zeros between its characters.
    if (header.some(name => name.includes('\0'))) throw this.#notUtf8();
    requireUnique(this.name, header);
    return header;
  }

  async *#text(watch: Watch): AsyncGenerator<string> {
    // The byte-order mark is gone. A second one is text.
    const decoder = new TextDecoder('utf-8', {fatal: true, ignoreBOM: true});
    try {
      for await (const chunk of bytesOf(this.name, watch)) yield decoder.decode(chunk, {stream: true});
      yield decoder.decode();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw this.#notUtf8(error);
    }
  }

  #notUtf8(cause?: unknown): CliError {
    return new CliError(`${this.name} is not UTF-8 text: convert it to UTF-8, or name its --format`, {cause});
  }
}
