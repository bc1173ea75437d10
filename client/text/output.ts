/** Output of a command: the result on standard output, every other line on standard error. */
import {jsonText, printable} from '../../shared/contracts/printable.ts';
import type {Answers} from '../json/index.ts';
import {aligned, type Column, cut, type Style, styled} from './format.ts';
import {withHints} from './hints.ts';

/** `is_row`: a row of a table, which a terminal cuts to its width. Other lines are whole. */
export type StyledLine = {text: string; style?: Style | Style[] | undefined; is_row?: boolean};
/** A line for a person, perhaps with a style of its own. */
export type TextLine = string | StyledLine;

/** Prints the answer of a command, such as `print<'run start'>`, as one line of JSON, or as lines for a person. */
export function print<Words extends keyof Answers = never>(
  json: boolean | undefined,
  answer: NoInfer<Answers[Words]>,
  lines: readonly TextLine[],
): void {
  if (json) printJson<Words>(answer);
  else printText(lines);
}

/** Prints one line of JSON, which the schema of the command describes. */
export function printJson<Words extends keyof Answers = never>(answer: NoInfer<Answers[Words]>): void {
  const named = changed === undefined ? answer : {...(answer as object), cloud: changed};
  process.stdout.write(`${jsonText(named as object)}\n`);
}

let changed: string | undefined;

/** A new command line begins, which has named no cloud. */
export function forgetCloud(): void {
  changed = undefined;
}

/** Names the cloud that this command changes: on a line now, in its question, and in its answer as JSON. */
export function nameCloud(name: string): void {
  changed = name;
  say(`cloud: ${name}`);
}

/** The cloud that this command changes; undefined for a command that changes none. */
export const cloudNamed = () => changed;

/** Control characters are replaced before the style is added. */
export function printText(lines: readonly TextLine[]): void {
  sayForNow('');
  const texts = lines.map(line => {
    const {text, style, is_row = false} = typeof line === 'string' ? {text: line} : line;
    const whole = withHints(printable(text));
    const shown = is_row ? fitting(whole) : whole;
    return `${style ? styled(style, shown) : shown}\n`;
  });
  process.stdout.write(texts.join(''));
}

/** A file and a pipe get whole lines. */
function fitting(line: string): string {
  return process.stdout.isTTY && process.stdout.columns > 0 ? cut(line, process.stdout.columns) : line;
}

/** Rows with their titles, each perhaps with a style of its own. */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  styleOf: (row: Row) => StyledLine['style'] = () => undefined,
): StyledLine[] {
  const cells = rows.map(row => columns.map(({cell}) => cell(row)));
  const titles = columns.map(({title}) => title.toUpperCase());
  const right = columns.map(column => column.right);
  return aligned([titles, ...cells], right).map((text, index) => {
    const row = rows[index - 1];
    return {text, style: row === undefined ? 'dim' : styleOf(row), is_row: true};
  });
}

let isQuiet = false;

/** `--quiet` of the command line: `say` prints nothing. */
export function setQuiet(quiet: boolean): void {
  isQuiet = quiet;
}

/** Prints a line of progress for a person on standard error. */
export function say(line: string): void {
  if (!isQuiet) complain(line);
}

let isShownForNow = false;

/** Shows a line on a terminal until the next line of any kind replaces it. An empty one removes it. */
export function sayForNow(line: string): void {
  if (isQuiet || (line === '' && !isShownForNow)) return;
  isShownForNow = line !== '';
  process.stderr.write(`\r\u001b[K${printable(line)}`);
}

/** Prints an error or a question on standard error, also with `--quiet`. */
export function complain(line: string): void {
  sayForNow('');
  process.stderr.write(`${withHints(printable(line))}\n`);
}

/** `Log` that prints warnings and errors on standard error. */
export function warn(severity: string, message: string): void {
  if (severity !== 'INFO') complain(message);
}

/** Text as one word of a shell. Characters that a terminal hides are escapes, which bash and zsh know. */
export function quoted(text: string): string {
  if (printable(text) !== text) return `$'${escaped(text)}'`;
  return /^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function escaped(text: string): string {
  const safe = text.replaceAll('\\', '\\\\').replaceAll("'", "\\'");
  return Array.from(safe, char => {
    if (printable(char) === char) return char;
    const code = char.codePointAt(0) ?? 0;
    return code < 0x80
      ? `\\x${code.toString(16).padStart(2, '0')}`
      : `\\U${code.toString(16).padStart(8, '0')}`;
  }).join('');
}
