/** What a command says: its result on standard output, and whatever else on standard error. */

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

/** Controls, and the format characters and line separators that turn or break a line. */
const UNSAFE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** A line as a terminal may have it: hostile names and messages keep none of their control characters. */
export function printable(line: string): string {
  return line.replace(UNSAFE, '\ufffd');
}

/** JSON of the same value, in printable characters alone. */
export function jsonText(value: object): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value).replace(UNSAFE, text => text.split('').map(escaped).join(''));
}

/** As a shell takes it back. */
export function quoted(text: string): string {
  return /^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
