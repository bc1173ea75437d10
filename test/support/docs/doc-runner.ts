/** Runs the blocks of a page in order, as a person would type them. */
import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
import {once} from 'node:events';
import {symlinkSync} from 'node:fs';
import {createServer} from 'node:net';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {workerPython} from '../../../client/python/python.ts';
import {listen, portOf} from '../machine/listen.ts';
import {GLEANER, ROOT} from '../machine/process.ts';
import {type Block, blocksOf} from './doc-blocks.ts';

/** Longest start of a process of a `sh background` block. */
const START_MS = 60_000;

export type Place = {dir: string; port: number; python: string; env: NodeJS.ProcessEnv};

/** A folder where `npx gleaner` and the reader work as in a checkout. A local cloud of the page gets a free port. */
export async function preparePlace(dir: string): Promise<Place> {
  for (const name of ['package.json', 'worker-startup', 'terraform', 'docs', 'shared'])
    symlinkSync(join(ROOT, name), join(dir, name));
  const port = await freePort();
  const own = {PYTHONPATH: `${ROOT}worker-startup`};
  return {dir, port, python: await workerPython(() => {}), env: {...process.env, ...own}};
}

async function freePort(): Promise<number> {
  const server = createServer();
  await listen(server);
  const port = portOf(server);
  server.close();
  await once(server, 'close');
  return port;
}

/** `npx gleaner` and `gleaner` are this program, as npm links them in a checkout. */
const COMMANDS = `gleaner() { '${process.execPath}' '${GLEANER}' "$@"; }
npx() { if [ "$1" = gleaner ]; then shift; gleaner "$@"; else command npx "$@"; fi; }
`;

/** Runs one program to its end. Its exit code, and its output with that of its errors. */
function run(place: Place, program: string, args: string[]): Promise<{code: number; output: string}> {
  return new Promise((resolve, reject) => {
    const {dir: cwd, env} = place;
    const child = spawn(program, args, {cwd, env, stdio: ['ignore', 'pipe', 'pipe']});
    let output = '';
    child.stdout.on('data', chunk => (output += chunk));
    child.stderr.on('data', chunk => (output += chunk));
    child.once('error', reject);
    child.once('close', code => resolve({code: code ?? 1, output}));
  });
}

/** The script of a block. A line that ends with `# exits with 1` must do so; every other line must succeed. */
export function scriptOf(lines: readonly string[]): string {
  const checked = lines.map(line =>
    / # exits with 1$/.test(line) ? `if ${line.replace(/ # exits with 1$/, '')}; then false; fi` : line,
  );
  return `${COMMANDS}set -eo pipefail\n${checked.join('\n')}\n`;
}

/** True if the lines of `wanted` occur in `output` in their order. `…` in a line stands for any text. */
export function isLike(wanted: readonly string[], output: string): boolean {
  const rest = output.split('\n');
  return wanted
    .filter(line => line.trim() !== '')
    .every(line => {
      const parts = line
        .trim()
        .split('…')
        .map(part => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
      const found = rest.findIndex(each => new RegExp(`^${parts.join('.*')}$`).test(each.trim()));
      rest.splice(0, found + 1);
      return found >= 0;
    });
}

/** Starts a block that goes on, and waits for its first line. */
async function start(place: Place, {page, line, lines}: Block): Promise<ChildProcess> {
  const {dir: cwd, env} = place;
  const script = lines.join('\n').replaceAll(/\blocal up\b/g, `local up --port ${place.port}`);
  const child = spawn('bash', ['-c', `${COMMANDS}${script}`], {
    cwd,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  const first = new Promise<void>((resolve, reject) => {
    child.stdout.on('data', chunk => {
      said += chunk;
      resolve();
    });
    child.stderr.on('data', chunk => (said += chunk));
    child.once('exit', code => reject(new Error(`${page}:${line} ended with ${code}: ${said}`)));
  });
  const late = sleep(START_MS, undefined, {ref: false}).then(() => {
    throw new Error(`${page}:${line} printed nothing: ${said}`);
  });
  await Promise.race([first, late]);
  return child;
}

/** Ends a process of a `sh background` block as Ctrl-C does. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise(resolve => child.once('exit', resolve));
  if (child.pid !== undefined) process.kill(-child.pid, 'SIGINT');
  await gone;
}

/**
 * Runs the blocks of a page in order, and returns what each printed. `background`: takes each process that goes on, also when a later
 * block fails. In a block `text measured` numbers other than 0 may differ; other blocks, such as `text seen`, are not compared.
 */
export async function runPage(
  place: Place,
  page: string,
  background: ChildProcess[],
  text?: string,
): Promise<string[]> {
  const outputs: string[] = [];
  let isFresh = false;
  for (const block of blocksOf(page, text)) {
    const where = `${page}:${block.line}`;
    const script = block.lines.join('\n');
    const isMeasured = block.info === 'text measured';
    if (isFresh && (isMeasured || block.info === 'text')) {
      const wanted = isMeasured
        ? block.lines.map(line => line.replaceAll(/\d[\d.,]*/g, each => (each === '0' ? each : '…')))
        : block.lines;
      const output = outputs.at(-1) ?? '';
      assert.ok(isLike(wanted, output), `${where}: the output differs:\n${output}`);
    }
    isFresh = block.info === 'sh run' || block.info === 'python run';
    if (block.info === 'sh background') background.push(await start(place, block));
    if (!isFresh) continue;
    const [program, args] =
      block.info === 'sh run' ? ['bash', ['-c', scriptOf(block.lines)]] : [place.python, ['-c', script]];
    const {code, output: printed} = await run(place, program as string, args as string[]);
    assert.equal(code, 0, `${where} exited with ${code}:\n${script}\n${printed}`);
    outputs.push(printed);
  }
  return outputs;
}
