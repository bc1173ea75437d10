/** Makes foreign text safe for terminals and logs: no character controls the terminal or starts a line. */

/** Control characters, format characters and line separators. */
const UNSAFE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

export const printable = (line: string) => line.replace(UNSAFE, '\ufffd');

/** One or more lines of text. */
export const printableLines = (text: string) => text.split('\n').map(printable).join('\n');

export function jsonText(value: object): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value).replace(UNSAFE, text => text.split('').map(escaped).join(''));
}

/** The value of a text of JSON; undefined for any other text. */
export function parsedText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
