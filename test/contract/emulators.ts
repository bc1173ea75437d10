/** Google's own emulators, started from the jars of the gcloud SDK with Java alone. */
import {type ChildProcess, spawn, spawnSync} from 'node:child_process';
import {existsSync, readdirSync, realpathSync} from 'node:fs';
import {createServer} from 'node:net';
import {delimiter, dirname, join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';

type Kind = 'firestore' | 'pubsub';
type Found = {command: string[]} | {missing: string};

const JARS: Record<Kind, {component: string; folder: string; jar: RegExp; main: string[]}> = {
  firestore: {
    component: 'cloud-firestore-emulator',
    folder: 'platform/cloud-firestore-emulator',
    jar: /^cloud-firestore-emulator\.jar$/,
    main: ['com.google.cloud.datastore.emulator.firestore.CloudFirestore', 'start'],
  },
  pubsub: {
    component: 'pubsub-emulator',
    folder: 'platform/pubsub-emulator/lib',
    jar: /^cloud-pubsub-emulator-.*-all\.jar$/,
    main: ['com.google.cloud.pubsub.testing.v1.Main'],
  },
};

/** Flags for a quick start and little memory, at the price of top speed. */
const JAVA_FLAGS = ['-Xmx512m', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];

export function findEmulator(kind: Kind): Found {
  const java = onPath('java');
  const gcloud = onPath('gcloud');
  if (!java || !gcloud) return {missing: `${java ? 'gcloud' : 'java'} is not installed`};
  const {component, folder, jar, main} = JARS[kind];
  for (const root of [() => dirname(dirname(realpathSync(gcloud))), () => sdkRoot(gcloud)]) {
    const parent = join(root(), folder);
    const name = existsSync(parent) && readdirSync(parent).find(file => jar.test(file));
    if (name) return {command: [java, ...JAVA_FLAGS, '-cp', join(parent, name), ...main]};
  }
  return {missing: `gcloud has no ${kind} emulator; run gcloud components install ${component}`};
}

/**
 * Runs the tests that `suite` declares against the emulator. Without the emulator, one skipped test names the missing part;
 * in CI that test fails.
 */
export function describeOnEmulator(kind: Kind, title: string, suite: (host: () => string) => void): void {
  describe(title, () => {
    const found = findEmulator(kind);
    if ('missing' in found) {
      const reason = `the ${kind} emulator did not run: ${found.missing}`;
      if (process.env.CI) it(reason, () => Promise.reject(new Error(reason)));
      else it.skip(reason);
      return;
    }
    let emulator: Emulator | undefined;
    before(async function () {
      this.timeout(60_000);
      emulator = await startEmulator(found.command);
    });
    after(() => emulator?.stop());
    suite(() => emulator?.host ?? '');
  });
}

export type Emulator = {host: string; stop: () => Promise<void>};

async function startEmulator(command: string[]): Promise<Emulator> {
  const host = `127.0.0.1:${await freePort()}`;
  const [program = '', ...args] = [...command, '--host=127.0.0.1', `--port=${host.split(':')[1]}`];
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

async function answers(host: string): Promise<boolean> {
  try {
    return (await fetch(`http://${host}/`)).ok;
  } catch {
    return false;
  }
}

/** A free port below the range from which the kernel assigns ports, so that no other server takes it first. */
async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const server = createServer();
    const isFree = await new Promise<boolean>(resolve => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise(resolve => server.close(resolve));
    return port;
  }
}

function onPath(program: string): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter).filter(folder => folder !== '');
  return folders.map(folder => join(folder, program)).find(file => existsSync(file));
}

function sdkRoot(gcloud: string): string {
  const {stdout} = spawnSync(gcloud, ['info', '--format=value(installation.sdk_root)'], {encoding: 'utf8'});
  return stdout?.trim() ?? '';
}
