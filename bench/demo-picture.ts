/**
 * Makes docs/pictures/demo.svg: `npm run picture`. Runs the first demo of a new folder in a pseudo terminal of `script`, reads its output with a
 * terminal emulator, and draws the screen once a second. The picture plays these frames, and rests at the last.
 */
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import headless, {type Terminal} from '@xterm/headless';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const [COLUMNS, ROWS] = [112, 36];
const [CELL_WIDTH, CELL_HEIGHT, MARGIN] = [8.4, 18, 14];
const FRAME_MS = 1000;
const LAST_S = 12;
/** Of GitHub's dark theme, by the number of the terminal's colour. */
const COLOURS: Record<number, string> = {1: '#ff7b72', 2: '#3fb950', 3: '#d29922'};
const [FOREGROUND, BACKGROUND] = ['#e6edf3', '#0d1117'];

const folder = mkdtempSync('/tmp/gleaner-picture-');
const frames = await record(`node ${ROOT}cli/gleaner.mjs demo`);
rmSync(folder, {recursive: true});
writeFileSync(`${ROOT}docs/pictures/demo.svg`, picture(frames));
console.log(`docs/pictures/demo.svg: ${frames.length} frames`);

/** Screens of the command, each once, as SVG. */
async function record(command: string): Promise<string[]> {
  const terminal = new headless.Terminal({cols: COLUMNS, rows: ROWS, allowProposedApi: true});
  const sized = `stty cols ${COLUMNS} rows ${ROWS}; ${command}`;
  const child = spawn('script', ['--quiet', '--return', '--flush', '--command', sized, '/dev/null'], {
    cwd: folder,
    env: {...process.env, TERM: 'xterm-256color'},
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const found: string[] = [];
  const draw = () => {
    const svg = screen(terminal);
    if (svg !== '' && svg !== found.at(-1)) found.push(svg);
  };
  const timer = setInterval(draw, FRAME_MS);
  child.stdout.on('data', chunk => terminal.write(chunk));
  const code = await new Promise(resolve => child.once('close', resolve));
  clearInterval(timer);
  if (code !== 0) throw new Error(`${command} ended with ${code}`);
  await new Promise<void>(resolve => terminal.write('', resolve));
  draw();
  return found;
}

type Style = {colour: string; bold: boolean; dim: boolean};

/** The visible rows of a terminal as SVG. */
function screen(terminal: Terminal): string {
  const {active} = terminal.buffer;
  const rows = Array.from({length: ROWS}, (_, row) => rowOf(active.getLine(active.viewportY + row), row));
  return rows.filter(row => row !== '').join('\n');
}

type BufferLine = ReturnType<Terminal['buffer']['active']['getLine']>;

function rowOf(line: BufferLine, row: number): string {
  if (!line) return '';
  const spans: {text: string; style: Style; column: number}[] = [];
  for (let column = 0; column < COLUMNS; column++) {
    const cell = line.getCell(column);
    if (!cell) break;
    const colour = cell.isFgPalette() ? (COLOURS[cell.getFgColor()] ?? FOREGROUND) : FOREGROUND;
    const style = {colour, bold: cell.isBold() !== 0, dim: cell.isDim() !== 0};
    const last = spans.at(-1);
    const text = cell.getChars() || ' ';
    if (last && JSON.stringify(last.style) === JSON.stringify(style)) last.text += text;
    else spans.push({text, style, column});
  }
  const y = MARGIN + (row + 0.75) * CELL_HEIGHT;
  return spans
    .filter(({text}) => text.trim() !== '')
    .map(({text, style, column}) => {
      const words = text.trimEnd();
      const x = (MARGIN + column * CELL_WIDTH).toFixed(1);
      const look = `${style.colour === FOREGROUND ? '' : ` fill="${style.colour}"`}${style.bold ? ' font-weight="700"' : ''}${style.dim ? ' opacity=".6"' : ''}`;
      return `<text x="${x}" y="${y.toFixed(1)}" textLength="${(words.length * CELL_WIDTH).toFixed(1)}"${look}>${escaped(words)}</text>`;
    })
    .join('');
}

function escaped(text: string): string {
  const shown = text.replace(/(?<=token=)\S+/, token => '•'.repeat(token.length));
  return shown.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll(' ', '\u00a0');
}

/** An animated picture. A viewer without animations shows the last frame. */
function picture(all: readonly string[]): string {
  const [width, height] = [COLUMNS * CELL_WIDTH + 2 * MARGIN, ROWS * CELL_HEIGHT + 2 * MARGIN];
  const total_s = ((all.length - 1) * FRAME_MS) / 1000 + LAST_S;
  const percent = (index: number) => String(Number(((index * FRAME_MS) / 10 / total_s).toFixed(3)));
  const groups = all.map((svg, index) => {
    const isLast = index === all.length - 1;
    // A later step at the same percent replaces an earlier one.
    const steps = new Map([
      ['0', 'hidden'],
      [percent(index), 'visible'],
      [isLast ? '100' : percent(index + 1), isLast ? 'visible' : 'hidden'],
      ['100', isLast ? 'visible' : 'hidden'],
    ]);
    const name = `f${index}`;
    const frames = [...steps].map(([at, seen]) => `${at}%{visibility:${seen}}`).join('');
    const style = `@keyframes ${name}{${frames}}#${name}{visibility:${isLast ? 'visible' : 'hidden'};animation:${name} ${total_s.toFixed(1)}s steps(1) infinite}`;
    return {style, group: `<g id="${name}">\n${svg}\n</g>`};
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width.toFixed(0)} ${height}" role="img" aria-label="gleaner demo">
<style>svg{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:14px;fill:${FOREGROUND}}${groups.map(({style}) => style).join('')}</style>
<rect width="100%" height="100%" rx="10" fill="${BACKGROUND}"/>
${groups.map(({group}) => group).join('\n')}
</svg>
`;
}
