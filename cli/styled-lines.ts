/** Lines for a terminal with a style of their own. */
import {printable} from '../shared/contracts/printable.ts';
import {cut, type Style, styled} from './format.ts';

export type StyledLine = {text: string; style?: Style | Style[] | undefined};

/**
 * Prints lines on standard output. A terminal cuts the lines of a table to its width; a file and a pipe get whole lines. Control
 * characters are replaced before the style is added.
 */
export function printLines(lines: readonly StyledLine[], {is_cut = true}: {is_cut?: boolean} = {}): void {
  for (const {text, style} of lines) {
    const line = printable(text);
    const shown = is_cut ? fitting(line) : line;
    process.stdout.write(`${style ? styled(style, shown) : shown}\n`);
  }
}

function fitting(line: string): string {
  return process.stdout.isTTY && process.stdout.columns > 0 ? cut(line, process.stdout.columns) : line;
}
