/** The character between the columns of a CSV file. */
import {parse} from 'csv-parse/sync';
import {CliError} from '../../terminal/errors.ts';
import {type Head, headOf} from './file-source.ts';
import {isTabbed} from './formats.ts';

/** `isFound`: neither the user, the name nor the file itself names the delimiter. `from_line` is behind Excel's `sep=` line. */
export type Layout = {delimiter: string; from_line: number; isFound: boolean};

const HEAD_BYTES = 256 << 10;
/** Records that show how many columns there are. */
const SHOWN_RECORDS = 100;
/** A file may mix them. */
export const LINE_ENDS = ['\r\n', '\n', '\r'];
const DELIMITERS = [',', ';', '\t', '|'];

/** Throws `CliError` where several delimiters are possible. */
export async function findLayout(file: string, given: string | undefined): Promise<Layout> {
  const head = await headOf(file, HEAD_BYTES);
  const named = /^(?:sep=([^\r\n])|"sep=([^\r\n])")[ \t]*(?:\r\n|\r|\n|$)/i.exec(head.text);
  const from_line = named ? 2 : 1;
  const delimiter = given ?? named?.[1] ?? named?.[2] ?? (isTabbed(file) ? '\t' : undefined);
  if (delimiter !== undefined) return {delimiter, from_line, isFound: false};
  return {delimiter: likely(file, head), from_line, isFound: true};
}

/** The delimiter that divides the header, and each of the first records into as many columns. */
function likely(file: string, {text, isWhole}: Head): string {
  const widths = new Map(DELIMITERS.map(delimiter => [delimiter, widthsOf(text, delimiter, isWhole)]));
  const inHeader = DELIMITERS.filter(delimiter => (widths.get(delimiter)?.[0] ?? 0) > 1);
  if (inHeader.length < 2) return inHeader[0] ?? ',';
  const even = inHeader.filter(delimiter => new Set(widths.get(delimiter)).size === 1);
  if (even.length === 1) return even[0] as string;
  throw new CliError(
    `${file} may have ${inHeader.map(nameOf).join(' or ')} between its columns: name the right one with --delimiter`,
  );
}

/** Columns of each of the first records; empty for text that is no CSV. */
function widthsOf(text: string, delimiter: string, isWhole: boolean): number[] {
  const widths: number[] = [];
  try {
    parse(text, {
      delimiter,
      to: SHOWN_RECORDS,
      record_delimiter: LINE_ENDS,
      skip_empty_lines: true,
      relax_column_count: true,
      on_record: record => void widths.push(record.length),
    });
  } catch (error) {
    const isCut = !isWhole && (error as {code?: string}).code === 'CSV_QUOTE_NOT_CLOSED';
    return isCut ? widths : [];
  }
  return isWhole || widths.length === SHOWN_RECORDS ? widths : widths.slice(0, -1);
}

/** A delimiter, for messages. */
export function nameOf(delimiter: string): string {
  return delimiter === '\t' ? 'tabs' : `"${delimiter}"`;
}
