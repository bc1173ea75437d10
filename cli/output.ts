/** Output of a command: the result on standard output, every other line on standard error. */
import {jsonText, printable} from '../shared/contracts/printable.ts';

/** Prints the result as one line of JSON, or as lines for a person. */
export function print(json: boolean | undefined, value: object, lines: readonly string[]): void {
  process.stdout.write(json ? `${jsonText(value)}\n` : `${lines.map(printable).join('\n')}\n`);
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

/** Prints an error or a question on standard error, also with `--quiet`. */
export function complain(line: string): void {
  process.stderr.write(`${printable(line)}\n`);
}

/** `Log` that prints warnings and errors on standard error. */
export function warn(severity: string, message: string): void {
  if (severity !== 'INFO') complain(message);
}

/** Text as one word of a shell. */
export function quoted(text: string): string {
  return /^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
