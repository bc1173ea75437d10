/** Output of a command: the result on standard output, every other line on standard error. */
import {jsonText, printable} from '../shared/contracts/printable.ts';

/** Prints the result as one line of JSON, or as lines for a person. */
export function print(json: boolean | undefined, value: object, lines: readonly string[]): void {
  process.stdout.write(json ? `${jsonText(value)}\n` : `${lines.map(printable).join('\n')}\n`);
}

/** Prints a line for a person on standard error. */
export function say(line: string): void {
  process.stderr.write(`${printable(line)}\n`);
}

/** `Log` that prints warnings and errors on standard error. */
export function warn(severity: string, message: string): void {
  if (severity !== 'INFO') say(message);
}

/** Dollars as `$1.24`, and below a cent with two digits: `$0.0031`. */
export function dollarText(usd: number): string {
  const isSmall = usd > 0 && usd < 0.01;
  return `$${isSmall ? usd.toLocaleString('en-US', {maximumSignificantDigits: 2}) : usd.toFixed(2)}`;
}

/** Text as one word of a shell. */
export function quoted(text: string): string {
  return /^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
