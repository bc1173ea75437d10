import {existsSync, mkdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {LocalCloudError} from '../http/errors.ts';
import {withDirectLoopback} from '../http/proxies.ts';
import {Machine} from '../vm/machine.ts';
import {addressArguments, answers, findEmulator, freePort, type Kind} from './java.ts';

const patience_ms = 60_000;
const NAMES: Record<Kind, string> = {firestore: 'Firestore', pubsub: 'Pub/Sub'};

export type EmulatorProcess = {
  /** HOST:PORT. */
  host: string;
  /** Resolves with a sentence when the process ends, including after `stop`. */
  ended: Promise<string>;
  stop: () => Promise<void>;
};

/** Folder of the emulators' files in the folder of a cloud. A folder without it has never used the emulators. */
export function emulatorFolder(dir: string): string {
  return join(dir, 'emulators');
}

/** Throws before anything starts if gcloud, Java or a component is missing. */
export function requireEmulators(): void {
  for (const kind of ['firestore', 'pubsub'] as const) commandOf(kind);
}

/** Starts one of Google's emulators. Like a VM, it ends with this process, even after `kill -9`. */
export async function startEmulator(kind: Kind, dir: string): Promise<EmulatorProcess> {
  const cwd = emulatorFolder(dir);
  mkdirSync(cwd, {recursive: true});
  const [script = '', ...options] = commandOf(kind);
  const host = `127.0.0.1:${await freePort()}`;
  const log_file = join(cwd, `${kind}.log`);
  const args = [...options, ...addressArguments(host)];
  const env = withDirectLoopback(process.env as Record<string, string>);
  const machine = new Machine({script, args, cwd, env, log_file});
  const name = `Google's ${NAMES[kind]} emulator`;
  let isOver = false;
  const ended = machine.scriptEnd.then(end => {
    isOver = true;
    return `${name} ended (${end}); its log is ${log_file}`;
  });
  const deadline = Date.now() + patience_ms;
  while (!(await answers(host))) {
    if (!isOver && Date.now() < deadline) {
      await sleep(50);
      continue;
    }
    await machine.kill();
    const text = existsSync(log_file) ? readFileSync(log_file, 'utf8').trim() : '';
    throw new LocalCloudError(
      'emulator-failed',
      `Failed to start ${name}: ${text.split('\n').at(-1) || 'it printed nothing'}; its log is ${log_file}`,
    );
  }
  return {host, ended, stop: () => machine.kill()};
}

function commandOf(kind: Kind): string[] {
  const found = findEmulator(kind);
  if ('command' in found) return found.command;
  throw new LocalCloudError(
    'emulator-missing',
    `Failed to find Google's ${NAMES[kind]} emulator: ${found.missing}`,
  );
}
