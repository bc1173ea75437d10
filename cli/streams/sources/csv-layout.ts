/** The character between the columns of a CSV file. */
import {parse} from 'csv-parse/sync';
import {CliError} from '../../terminal/errors.ts';
import {type Head, headOf} from './file-source.ts';
import {isTabbed} from './formats.ts';

/** `isFound`: neither the user nor the name of the file names the delimiter. */
export type Layout = {delimiter: string; isFound: boolean};

const HEAD_BYTES = 256 << 10;
/** Records that show how many columns there are. */
const SHOWN_RECORDS = 100;
/** A file may mix them. */
export const LINE_ENDS = ['\r\n', '\n'];
const DELIMITERS = [',', ';', '\t', '|'];

/** Throws `CliError` where several delimiters are possible, and for what is not read. */
export async function findLayout(file: string, given: string | undefined): Promise<Layout> {
  const head = await headOf(file, HEAD_BYTES);
  if (/^"?sep=/i.test(head.text))
    throw new CliError(
      `${file} begins with the line sep= of Excel: delete that line, and name the character with --delimiter`,
    );
  if (/\r[^\n]/.test(head.text) && !head.text.includes('\n')) throw loneReturn(file);
  const delimiter = given ?? (isTabbed(file) ? '\t' : undefined);
  return delimiter === undefined
    ? {delimiter: likely(file, head), isFound: true}
    : {delimiter, isFound: false};
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

/** Earlier programs of the Macintosh end lines so. */
export function loneReturn(where: string): CliError {
  return new CliError(
    `${where} has a carriage return alone, as the end of a line or in a value without quotes: write line ends as \\n, such as with tr '\\r' '\\n'`,
  );
}
