/** Lines that change in place at the end of a terminal, below lines that stay. Elsewhere the output only grows. */

import {cut, styled, widthOf} from '../../client/text/format.ts';
import type {StyledLine} from '../../client/text/output.ts';
import {printable} from '../../shared/contracts/printable.ts';

/** Terminals that know this show a frame as a whole. Others ignore it. */
const [BEGIN, END] = ['\u001b[?2026h', '\u001b[?2026l'];
const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;

export class LiveScreen {
  readonly #out: NodeJS.WriteStream;
  /** Cells of the lines that change in place, as they were written last. */
  #drawn: number[] = [];
  #below: readonly StyledLine[] = [];

  constructor(out: NodeJS.WriteStream) {
    this.#out = out;
  }

  get isTerminal(): boolean {
    return this.#out.isTTY === true;
  }

  get width(): number {
    return this.#out.columns || DEFAULT_COLUMNS;
  }

  /** Lines that fit below each other; the last line of a terminal stays free. */
  get height(): number {
    return (this.#out.rows || DEFAULT_ROWS) - 1;
  }

  /** Writes lines that stay. A terminal shows them above the changing ones. */
  add(lines: readonly StyledLine[]): void {
    if (lines.length > 0) this.#write(lines, this.#below);
  }

  /** Replaces the changing lines of a terminal, and writes lines that stay above them. */
  show(below: readonly StyledLine[], above: readonly StyledLine[] = []): void {
    if (this.isTerminal) this.#write(above, below);
    else this.add(above);
  }

  /** The changing lines stay as they are. */
  end(): void {
    this.#below = [];
    this.#drawn = [];
  }

  #write(above: readonly StyledLine[], below: readonly StyledLine[]): void {
    if (!this.isTerminal) {
      this.#out.write(above.map(line => `${this.#styled(line, printable(line.text))}\n`).join(''));
      return;
    }
    const fitting = below
      .slice(0, this.height)
      .map(line => ({...line, text: cut(printable(line.text), this.width - 1)}));
    const lines = [...above.map(line => ({...line, text: printable(line.text)})), ...fitting];
    const text = lines.map(line => `${this.#styled(line, line.text)}\n`).join('');
    this.#out.write(`${BEGIN}${this.#erase()}${text}${END}`);
    this.#below = below;
    this.#drawn = fitting.map(({text}) => widthOf(text));
  }

  #styled({style}: StyledLine, text: string): string {
    return style ? styled(style, text, this.#out) : text;
  }

  /** Lines that are longer than a narrower terminal have wrapped since. */
  #erase(): string {
    const rows = this.#drawn.reduce((sum, length) => sum + Math.max(1, Math.ceil(length / this.width)), 0);
    return rows === 0 ? '' : `\u001b[${rows}A\r\u001b[J`;
  }
}
