/** Text of strangers in a terminal or in a log: none of its characters drives the terminal, or begins a line. */

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
