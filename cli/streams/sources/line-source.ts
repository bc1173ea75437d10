/** Files whose rows are lines: JSON Lines, and plain text with one sample a line. Blank lines are no rows. */
import {isUtf8} from 'node:buffer';
import {bytesOf, FileSource, tooLong} from './file-source.ts';
import {isBlank, LongLine, lineBatches} from './lines.ts';
import {type Row, rowError, type Watch} from './row.ts';

abstract class LineFile extends FileSource {
  readonly unit = 'line';

  protected abstract rowOf(at: number, line: Buffer): Row;

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    let at = 0;
    try {
      for await (const lines of lineBatches(bytesOf(this.name, watch), this.most_row_bytes))
        yield lines.flatMap(line => {
          at++;
          return isBlank(line) ? [] : this.rowOf(at, line);
        });
    } catch (error) {
      if (!(error instanceof LongLine)) throw error;
      throw tooLong(this.name, this.unit, error.after, this.most_row_bytes);
    }
  }
}

/** JSON Lines. The bytes of a line stay as they are. */
export class JsonLines extends LineFile {
  protected override rowOf(at: number, line: Buffer): Row {
    return {at, line};
  }
}

/** Text: each line is the column `text` of a row. */
export class TextLines extends LineFile {
  protected override rowOf(at: number, line: Buffer): Row {
    if (!isUtf8(line)) throw rowError(this, {at}, 'it is not UTF-8 text; convert the file to UTF-8');
    return {at, cells: new Map([['text', line.toString('utf8').replace(/\r$/, '')]])};
  }
}
