/** Files whose rows are lines: JSON Lines, and plain text with one sample a line. */
import {isUtf8} from 'node:buffer';
import {isBlank, lineBatches} from '../lines.ts';
import {FileSource} from './file-source.ts';
import {bytesOf} from './open-file.ts';
import {type Row, rowError, type Watch} from './row.ts';

/** JSON Lines. The bytes of a line stay as they are; blank lines are no rows. */
export class JsonLines extends FileSource {
  readonly unit = 'line';

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    let at = 0;
    for await (const lines of lineBatches(bytesOf(this.name, watch))) {
      const rows: Row[] = [];
      for (const line of lines) {
        at++;
        if (!isBlank(line)) rows.push({at, line});
      }
      yield rows;
    }
  }
}

/** Text: each line that is not blank is the column `text` of a row. */
export class TextLines extends FileSource {
  readonly unit = 'line';

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    let at = 0;
    for await (const lines of lineBatches(bytesOf(this.name, watch))) {
      const rows: Row[] = [];
      for (const line of lines) {
        at++;
        if (isBlank(line)) continue;
        if (!isUtf8(line))
          throw rowError(this, {at, line}, 'it is not UTF-8 text; convert the file to UTF-8');
        rows.push({at, record: {text: line.toString('utf8').replace(/\r$/, '')}});
      }
      yield rows;
    }
  }
}
