/** What a command says: its result on standard output, and whatever else on standard error. */
import {jsonText, printable} from '../shared/contracts/printable.ts';

/** The result as one line of JSON, or as lines for a person. */
export function print(json: boolean | undefined, value: object, lines: readonly string[]): void {
  process.stdout.write(json ? `${jsonText(value)}\n` : `${lines.map(printable).join('\n')}\n`);
}

/** A line for a person, on standard error. */
export function say(line: string): void {
  process.stderr.write(`${printable(line)}\n`);
}

/** A `Log` of what a reader finds wrong on its way. */
export function warn(severity: string, message: string): void {
  if (severity !== 'INFO') say(message);
}

/** `$1.24`; below a cent, what there is of it: `$0.0031`. */
export function dollarText(usd: number): string {
  const isSmall = usd > 0 && usd < 0.01;
  return `$${isSmall ? usd.toLocaleString('en-US', {maximumSignificantDigits: 2}) : usd.toFixed(2)}`;
}

/** As a shell takes it back. */
export function quoted(text: string): string {
  return /^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
