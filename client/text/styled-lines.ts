/** Lines for a terminal with a style of their own. */
import {printable} from '../../shared/contracts/printable.ts';
import {type Column, cut, type Style, styled, table} from './format.ts';
import {withHints} from './hints.ts';

/** `is_row`: a row of a table, which a terminal cuts to its width. Other lines are whole. */
export type StyledLine = {text: string; style?: Style | Style[] | undefined; is_row?: boolean};

/** Prints lines on standard output. Control characters are replaced before the style is added. */
export function printLines(lines: readonly StyledLine[]): void {
  for (const {text, style, is_row = false} of lines) {
    const line = withHints(printable(text));
    const shown = is_row ? fitting(line) : line;
    process.stdout.write(`${style ? styled(style, shown) : shown}\n`);
  }
}

/** A file and a pipe get whole lines. */
function fitting(line: string): string {
  return process.stdout.isTTY && process.stdout.columns > 0 ? cut(line, process.stdout.columns) : line;
}

/** A table whose rows have styles of their own. */
export function styledTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  styleOf: (row: Row) => StyledLine['style'] = () => undefined,
): StyledLine[] {
  const [text = '', ...lines] = table(columns, rows);
  const styles = rows.map(styleOf);
  return [
    {text, style: 'dim', is_row: true},
    ...lines.map((text, index) => ({text, style: styles[index], is_row: true})),
  ];
}
