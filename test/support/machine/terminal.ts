/** A terminal for tests: a stream that a program writes to, and the screen that a person would see. */
import {PassThrough} from 'node:stream';
import {WriteStream} from 'node:tty';
import headless from '@xterm/headless';

export type TestTerminal = {
  out: NodeJS.WriteStream;
  resize(columns: number, rows: number): void;
  /** Lines of the screen and of what has scrolled away, without empty ones at the end. */
  lines(): Promise<string[]>;
  /** Everything that was written. */
  raw(): string;
};

export function aTerminal(columns: number, rows: number, env: Record<string, string> = {}): TestTerminal {
  const terminal = new headless.Terminal({
    ...{cols: columns, rows, scrollback: 10_000},
    ...{allowProposedApi: true, convertEol: true},
  });
  let raw = '';
  const stream = new PassThrough();
  stream.on('data', chunk => {
    raw += chunk;
    terminal.write(String(chunk));
  });
  const getColorDepth = () => WriteStream.prototype.getColorDepth({TERM: 'xterm-256color', ...env});
  const out = Object.assign(stream, {isTTY: true, columns, rows, getColorDepth});
  return {
    out: out as unknown as NodeJS.WriteStream,
    resize: (columns, rows) => {
      Object.assign(out, {columns, rows});
      terminal.resize(columns, rows);
    },
    lines: async () => {
      await new Promise<void>(resolve => terminal.write('', resolve));
      const {active} = terminal.buffer;
      const lines = Array.from(
        {length: active.length},
        (_, row) => active.getLine(row)?.translateToString(true) ?? '',
      );
      return lines.join('\n').trimEnd().split('\n');
    },
    raw: () => raw,
  };
}
