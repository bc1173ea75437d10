/** Google's own emulators, started with Java directly from the jars of the gcloud SDK. */
import {spawnSync} from 'node:child_process';
import {existsSync, readdirSync, realpathSync} from 'node:fs';
import {createServer} from 'node:net';
import {delimiter, dirname, join} from 'node:path';

export type Kind = 'firestore' | 'pubsub';
export type Found = {command: string[]} | {missing: string};

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

/** Flags for a quick start and little memory, at the cost of top speed. */
const JAVA_FLAGS = ['-Xmx512m', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];

/** Command of an emulator, without its address; or the missing part and how to install it. */
export function findEmulator(kind: Kind): Found {
  const java = onPath('java');
  const gcloud = onPath('gcloud');
  if (!gcloud) return {missing: 'gcloud is not installed; install the Google Cloud CLI'};
  if (!java) return {missing: 'java is not installed; install a Java runtime of version 17 or newer'};
  const {component, folder, jar, main} = JARS[kind];
  for (const root of [() => dirname(dirname(realpathSync(gcloud))), () => sdkRoot(gcloud)]) {
    const parent = join(root(), folder);
    const name = existsSync(parent) && readdirSync(parent).find(file => jar.test(file));
    if (name) return {command: [java, ...JAVA_FLAGS, '-cp', join(parent, name), ...main]};
  }
  return {missing: `There is no ${kind} emulator of gcloud; run \`gcloud components install ${component}\``};
}

/** Arguments that make an emulator listen on an address of this machine only. */
export function addressArguments(host: string): string[] {
  return ['--host=127.0.0.1', `--port=${host.split(':')[1]}`];
}

export async function answers(host: string): Promise<boolean> {
  try {
    return (await fetch(`http://${host}/`)).ok;
  } catch {
    return false;
  }
}

/** A free port below the range from which the kernel assigns ports, so that no other server takes it first. */
export async function freePort(): Promise<number> {
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
