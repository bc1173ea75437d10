/**
 * Measures a new instance of each function of the build: `npm run bench:cold-start [-- --rounds N]`. Counts processor time and
 * memory until the function listens, and until it has answered its first event. Documents are in Google's Firestore emulator, and
 * objects, messages and nodes on the local cloud. With `--boot` measures the boot of a host instead: requests, bytes
 * and processor time until its agent asks for work. Exits with 1 where a limit is missed.
 */
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {Firestore} from '@google-cloud/firestore';
import {Command} from 'commander';
import {buildArtifacts} from '../cli/build/artifacts.ts';
import {startLocalCloud} from '../emulator/cloud.ts';
import {documentRequest} from '../emulator/functions/document-events.ts';
import {functionEnvironment} from '../emulator/functions/environment.ts';
import {startEmulator} from '../emulator/google/process.ts';
import {openObjects} from '../shared/google/objects.ts';
import {openTpus} from '../shared/google/tpus.ts';
import {claimsOf, encoded, withoutSignature} from '../test/support/fakes/tokens.ts';
import {workerEnvironment} from '../test/support/machine/worker-environment.ts';
import {messageData} from '../test/world/bus.ts';
import {measureBoot} from './cold-start/boot.ts';
import {type First, firstEvents, NODE} from './cold-start/events.ts';

type Figures = {cpu_s: number; memory_mib: number};
type Round = {listening: Figures; answered: Figures};

const USUAL: Round = {
  listening: {cpu_s: 0.25, memory_mib: 90},
  answered: {cpu_s: 1, memory_mib: 160},
};
const LIMITS: Record<string, Round> = {
  'on-tick': {...USUAL, answered: {cpu_s: 1.2, memory_mib: 176}},
};

const HOST = fileURLToPath(new URL('cold-start/host.mjs', import.meta.url));

/** A boot is the same work each time: two requests of the bucket, and few of the others. */
const BOOT = {requests: 80, cpu_s: 30};

const {rounds, boot} = new Command('bench:cold-start')
  .option('--rounds <n>', 'new instances of each function; the figures are the least of them', Number, 5)
  .option('--boot', 'measure the boot of a host instead, with the environment without libtpu')
  .parse()
  .opts<{rounds: number; boot?: boolean}>();

const all = new Map<string, Round[]>();
if (boot) await printBoot();
else await measureFunctions();

async function printBoot(): Promise<void> {
  const {archive} = await workerEnvironment();
  const {requests, fetched_bytes, cpu_s} = await measureBoot(archive);
  const {metadata, worker_api, bucket} = requests;
  console.log(`requests: ${metadata} of metadata, ${worker_api} of worker-api, ${bucket} of the bucket`);
  console.log(`fetched: ${(fetched_bytes / 1e6).toFixed(1)} MB; processor time: ${cpu_s} s`);
  if (metadata + worker_api + bucket > BOOT.requests || cpu_s > BOOT.cpu_s) process.exitCode = 1;
}

async function measureFunctions(): Promise<void> {
  const {module} = await buildArtifacts();
  for (let round = 0; round < rounds; round++)
    for (const [name, measured] of await measureAll(module))
      all.set(name, [...(all.get(name) ?? []), measured]);
  console.log('function     listening         at most           first answer      at most');
}

for (const [name, measured] of all) {
  const limit = LIMITS[name] ?? USUAL;
  const cells = (['listening', 'answered'] as const).flatMap(stage => {
    const least: Figures = {
      cpu_s: Math.min(...measured.map(each => each[stage].cpu_s)),
      memory_mib: Math.min(...measured.map(each => each[stage].memory_mib)),
    };
    const {cpu_s, memory_mib} = limit[stage];
    if (!(least.cpu_s <= cpu_s && least.memory_mib <= memory_mib)) process.exitCode = 1;
    return [text(least), text(limit[stage])];
  });
  console.log(`${name.padEnd(12)} ${cells.join('   ')}`);
}

function text({cpu_s, memory_mib}: Figures): string {
  return `${cpu_s.toFixed(2)} s ${String(Math.round(memory_mib)).padStart(4)} MiB`;
}

/** One new instance of each function, over documents and objects of their own. */
async function measureAll(module: string): Promise<[name: string, measured: Round][]> {
  const dir = mkdtempSync(join(tmpdir(), 'gleaner-cold-'));
  const firestore = await startEmulator('firestore', dir);
  // A node never finishes its creation, so no VM boots beside the measurement.
  const cloud = await startLocalCloud({dir, port: 0, create_ms: 3_600_000, tick_interval_ms: 3_600_000});
  try {
    const {project, bucket, url: endpoint, token} = cloud;
    const objects = openObjects({project, bucket, endpoint, token});
    await objects.create('datasets/cold/stream_000.jsonl', Buffer.from('{"text":"one"}\n'));
    const measured: [string, Round][] = [];
    const databaseId = 'gleaner';
    const documents = new Firestore({projectId: project, databaseId, host: firestore.host, ssl: false});
    for (const first of firstEvents(bucket)) {
      if (first.document) await documents.doc(first.document).create(first.data);
      measured.push([
        first.name,
        await measure(module, first, {...environmentOf(), FIRESTORE_EMULATOR_HOST: firestore.host}),
      ]);
    }
    // An event that fails early would look fast.
    const {tpus} = await openTpus({project, endpoint, token}).list();
    if (!tpus.some(({name}) => name === NODE)) throw new Error(`The events created no ${NODE}`);
    return measured;

    function environmentOf(): Record<string, string> {
      const deployment = {name: 'gleaner', bucket, store_file: ''};
      const where = {...cloud, firestore_endpoint: firestore.host};
      return {
        ...functionEnvironment(where, deployment, token, {ticket_key: token, metadata_host: '127.0.0.1:1'}),
        ...{GLEANER_BUNDLE: '0'.repeat(64), K_SERVICE: 'gleaner'},
      };
    }
  } finally {
    await cloud.close();
    await firestore.stop();
    rmSync(dir, {recursive: true, force: true});
  }
}

async function measure(module: string, first: First, env: Record<string, string>): Promise<Round> {
  const child = fork(HOST, [module, first.name], {
    env: {...process.env, ...env},
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  try {
    const [port] = await once(child, 'message');
    const listening = figuresOf(child);
    const response = await send(first, port, env);
    const text = await response.text();
    if (!response.ok) throw new Error(`${first.name} answered ${response.status}: ${text.slice(0, 500)}`);
    return {listening, answered: figuresOf(child)};
  } finally {
    child.kill('SIGKILL');
  }
}

/** Processor time, and the most memory so far, of a process and its threads. */
function figuresOf({pid = 0}: ChildProcess): Figures {
  const [, kib = '0'] = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user = 0, system = 0] = ticks.slice(11, 13).map(Number); // a Linux has 100 in a second
  return {cpu_s: (user + system) / 100, memory_mib: Number(kib) / 1024};
}

function send(first: First, port: number, env: Record<string, string>): Promise<Response> {
  const {path, ...request} = requestOf(first, env);
  return fetch(`http://127.0.0.1:${port}/${path}`, {method: 'POST', ...request});
}

function requestOf({topic, document, data, attributes}: First, env: Record<string, string>) {
  const headers = {'content-type': 'application/json'};
  const project = env.GLEANER_PROJECT ?? '';
  const now_at = new Date().toISOString();
  if (document) {
    const event = {database: 'gleaner', path: document, created_at: now_at, data: ''};
    return {path: '', ...documentRequest(`cold-${document}`, event, project)};
  }
  if (topic === undefined) {
    const authorization = `Bearer ${asCloudRunPasses(env)}`;
    return {path: '', headers: {...headers, authorization}, body: JSON.stringify(data)};
  }
  const pushed = messageData(`cold-${topic}`, JSON.stringify(data), now_at, attributes);
  const subscription = `projects/${project}/subscriptions/gleaner-${topic}`;
  return {
    path: `projects/${project}/topics/${topic}`,
    headers,
    body: JSON.stringify({...pushed, subscription}),
  };
}

/** A token of the control account, whose signature Cloud Run has checked and removed. */
function asCloudRunPasses(env: Record<string, string>): string {
  const claims = claimsOf(env.GLEANER_CONTROL_SERVICE_ACCOUNT ?? '', env.GLEANER_WORKER_API ?? '');
  return withoutSignature(`${encoded({alg: 'RS256', typ: 'JWT'})}.${encoded(claims)}`);
}
