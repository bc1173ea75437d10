/** Output of a command: the result on standard output, every other line on standard error. */
import {jsonText, printable} from '../../shared/contracts/printable.ts';
import type {Answers} from '../json/index.ts';
import {withHints} from './hints.ts';

/** Prints the answer of a command, such as `print<'run start'>`, as one line of JSON, or as lines for a person. */
export function print<Words extends keyof Answers = never>(
  json: boolean | undefined,
  answer: NoInfer<Answers[Words]>,
  lines: readonly string[],
): void {
  if (json) printJson<Words>(answer);
  else printText(lines);
}

/** Prints one line of JSON, which the schema of the command describes. */
export function printJson<Words extends keyof Answers = never>(answer: NoInfer<Answers[Words]>): void {
  process.stdout.write(`${jsonText(answer as object)}\n`);
}

export function printText(lines: readonly string[]): void {
  sayForNow('');
  process.stdout.write(`${lines.map(line => withHints(printable(line))).join('\n')}\n`);
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
