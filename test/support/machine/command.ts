/** Commands in the process of the test. A process for each would take a quarter of a second of a core. */
// It starts its process in the folder in which it is loaded: before a command leaves for a folder that is removed later.
import 'esbuild';
import {runCommandLine} from '../../../cli/command-line.ts';

type Ended = {code: number; stdout: string; stderr: string};

let last: Promise<unknown> = Promise.resolve();

type Options = {cwd?: string; env?: Record<string, string>};

/** Runs `gleaner ARGS` to its end. */
export function gleaner(args: string[], options: Options = {}): Promise<Ended> {
  return alone(() => runCommandLine(args), {...options, args});
}

/** Runs a command to its end, after the command before it: commands share the output and the variables of the process. */
export function alone(
  command: () => Promise<void>,
  options: Options & {args?: string[]} = {},
): Promise<Ended> {
  const ended = last.then(() => runAlone(command, options));
  last = ended.catch(() => {});
  return ended;
}

async function runAlone(
  command: () => Promise<void>,
  {args = [], cwd = process.cwd(), env: variables = {}}: Options & {args?: string[]},
): Promise<Ended> {
  const {argv, env, exitCode} = process;
  const before = process.cwd();
  const [stdout, stderr] = [process.stdout, process.stderr].map(capture) as [Captured, Captured];
  const terminal = process.stdin.isTTY;
  process.stdin.isTTY = false;
  process.argv = [...argv.slice(0, 2), ...args];
  process.env = {...withoutClouds(env), ...variables};
  process.exitCode = undefined;
  process.chdir(cwd);
  try {
    await command();
    return {code: Number(process.exitCode ?? 0), stdout: stdout.text(), stderr: stderr.text()};
  } finally {
    process.chdir(before);
    process.exitCode = exitCode;
    process.env = env;
    process.argv = argv;
    process.stdin.isTTY = terminal;
    stdout.end();
    stderr.end();
  }
}

/** The variables without the cloud that an earlier test of this process has pointed Google's clients at. */
function withoutClouds(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const {STORAGE_EMULATOR_HOST: _, FIRESTORE_EMULATOR_HOST: __, PUBSUB_EMULATOR_HOST: ___, ...others} = env;
  return others;
}

type Captured = {text: () => string; end: () => void};

/** Keeps what is written to a stream, which is no terminal until `end`. */
function capture(stream: NodeJS.WriteStream): Captured {
  const {write, isTTY} = stream;
  let said = '';
  stream.isTTY = false;
  stream.write = ((chunk: string | Uint8Array, ...rest: unknown[]) => {
    said += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString();
    const done = rest.find(each => typeof each === 'function') as (() => void) | undefined;
    if (done) process.nextTick(done);
    return true;
  }) as typeof write;
  return {
    text: () => said,
    end: () => {
      Object.assign(stream, {write, isTTY});
    },
  };
}
