/** Google's own emulators, started from the jars of the gcloud SDK with Java alone. */
import {type ChildProcess, spawn} from 'node:child_process';
import {setTimeout as sleep} from 'node:timers/promises';
import {addressArguments, answers, findEmulator, freePort, type Kind} from '../../emulator/google/java.ts';

/**
 * Runs the tests that `suite` declares against the emulator, but not in the fast tier. Without the emulator, one skipped test names the missing part;
 * in CI that test fails.
 */
export function describeOnEmulator(kind: Kind, title: string, suite: (host: () => string) => void): void {
  describe(`${title} @full`, () => {
    const found = findEmulator(kind);
    if ('missing' in found) {
      const reason = `the ${kind} emulator did not run: ${found.missing}`;
      if (process.env.CI) it(reason, () => Promise.reject(new Error(reason)));
      else it.skip(reason);
      return;
    }
    let emulator: Emulator | undefined;
    before(async () => {
      emulator = await startEmulator(found.command);
    });
    after(() => emulator?.stop());
    suite(() => emulator?.host ?? '');
  });
}

/** Skips the tests of a suite without both emulators, and names the missing part; in CI it throws. */
export function needEmulators(hook: {skip: () => void}): void {
  for (const kind of ['firestore', 'pubsub'] as const) {
    const found = findEmulator(kind);
    if ('command' in found) continue;
    if (process.env.CI) throw new Error(`CI needs the ${kind} emulator: ${found.missing}`);
    console.log(`  skipped: ${found.missing}`);
    hook.skip();
  }
}

export type Emulator = {host: string; stop: () => Promise<void>};

/** Another process of an emulator that is installed, with further arguments. */
export async function startAnother(kind: Kind, ...args: string[]): Promise<Emulator> {
  const found = findEmulator(kind);
  if ('missing' in found) throw new Error(found.missing);
  return startEmulator([...found.command, ...args]);
}

async function startEmulator(command: string[]): Promise<Emulator> {
  const host = `127.0.0.1:${await freePort()}`;
  const [program = '', ...args] = [...command, ...addressArguments(host)];
  // A process group of its own: a kill also ends every process that Java may start.
  const java = spawn(program, args, {detached: true, stdio: ['ignore', 'ignore', 'pipe']});
  let said = '';
  java.stderr?.on('data', chunk => {
    said = (said + chunk).slice(-4000);
  });
  const ended = new Promise<void>(resolve => java.once('close', () => resolve()));
  const kill = (): void => killGroup(java);
  process.once('exit', kill);
  while (!(await answers(host))) {
    if (java.exitCode !== null || java.signalCode !== null)
      throw new Error(`Failed to start the emulator (${command.join(' ')}): it ended and said: ${said}`);
    await sleep(50);
  }
  return {
    host,
    stop: async () => {
      kill();
      process.off('exit', kill);
      await ended;
    },
  };
}

function killGroup({pid, exitCode, signalCode}: ChildProcess): void {
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL');
}
