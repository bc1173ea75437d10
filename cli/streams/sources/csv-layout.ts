/** The character between the columns of a CSV file. */
import {CliError} from '../../../client/text/errors.ts';
import {headOf} from './file-source.ts';
import {isTabbed} from './formats.ts';

const HEAD_BYTES = 256 << 10;
/** A file may mix them. */
export const LINE_ENDS = ['\r\n', '\n'];
const DELIMITERS = [',', ';', '\t', '|'];

/** The character that the user or the name of the file names, else that of the header. Throws `CliError` for what is not read. */
export async function findDelimiter(file: string, given: string | undefined): Promise<string> {
  const {text} = await headOf(file, HEAD_BYTES);
  if (/^"?sep=/i.test(text))
    throw new CliError(
      `${file} begins with the line sep= of Excel: delete that line, and name the character with --delimiter`,
    );
  if (/\r[^\n]/.test(text) && !text.includes('\n')) throw loneReturn(file);
  return given ?? (isTabbed(file) ? '\t' : likely(file, text));
}

/** The only delimiter in the first line; a comma where there is none. */
function likely(file: string, text: string): string {
  const [header = ''] = text.replace(/^[\r\n]+/, '').split(/[\r\n]/, 1);
  const found = DELIMITERS.filter(delimiter => header.includes(delimiter));
  if (found.length < 2) return found[0] ?? ',';
  throw new CliError(
    `${file} may have ${found.map(nameOf).join(' or ')} between its columns: name the right one with --delimiter`,
  );
}

export function nameOf(delimiter: string): string {
  return delimiter === '\t' ? 'tabs' : `"${delimiter}"`;
}

/** Earlier programs of the Macintosh end lines so. */
export function loneReturn(where: string): CliError {
  return new CliError(
    `${where} has a carriage return alone, as the end of a line or in a value without quotes: write line ends as \\n, such as with tr '\\r' '\\n'`,
  );
}
