/**
 * Measures `gleaner streams upload` against `gcloud storage cp`: `npm run bench:streams-upload [-- --rounds N --streams N
 * --megabytes N]`. Both commands upload the same streams into a local cloud, in alternating rounds. Prints MB/s of both and their
 * ratio. The time of a command includes its start. Above 1, the ratio says that `gleaner` is faster.
 */
import {execFile} from 'node:child_process';
import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {cpus, loadavg, tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';
import {Command} from 'commander';
import {startLocalCloud} from '../emulator/cloud.ts';
import {streamId} from '../shared/domain/names.ts';
import {gcloudEnvironment} from '../test/support/machine/gcloud-environment.ts';
import {spread} from './spread.ts';

const MAIN = fileURLToPath(new URL('../cli/main.ts', import.meta.url));

const {rounds, streams, megabytes} = new Command('bench:streams-upload')
  .option('--rounds <n>', 'uploads by each command', Number, 5)
  .option('--streams <n>', 'number of streams', Number, 16)
  .option('--megabytes <n>', 'size of each stream', Number, 16)
  .parse()
  .opts<{rounds: number; streams: number; megabytes: number}>();

const dir = mkdtempSync(join(tmpdir(), 'gleaner-streams-upload-'));
const cloud = await startLocalCloud({dir: join(dir, 'cloud'), port: 0});
const input = join(dir, 'streams');
const gcloudEnv = gcloudEnvironment(cloud, join(dir, 'config'));

function makeStreams(): void {
  mkdirSync(input);
  for (let index = 0; index < streams; index++) {
    const line = `{"text":"${String(index).padEnd(989, 'x')}"}\n`;
    writeFileSync(join(input, `stream_${streamId(index)}.jsonl`), line.repeat(megabytes * 1000));
  }
}

async function secondsOf(file: string, args: string[], env: NodeJS.ProcessEnv): Promise<number> {
  const start = performance.now();
  await promisify(execFile)(file, args, {env});
  return (performance.now() - start) / 1000;
}

function uploadByGleaner(run: string): Promise<number> {
  const args = ['streams', 'upload', input, '--run', run, '--port', new URL(cloud.url).port];
  return secondsOf(process.execPath, [MAIN, ...args], process.env);
}

function uploadByGcloud(run: string): Promise<number> {
  const to = `gs://${cloud.bucket}/datasets/${run}/`;
  const files = Array.from({length: streams}, (_, index) => join(input, `stream_${streamId(index)}.jsonl`));
  return secondsOf('gcloud', ['storage', 'cp', '--no-clobber', ...files, to], gcloudEnv);
}

try {
  makeStreams();
  const speeds: {gleaner: number[]; gcloud: number[]} = {gleaner: [], gcloud: []};
  const size_mb = streams * megabytes;
  for (let round = 0; round < rounds; round++) {
    const first = round % 2 === 0;
    if (first) speeds.gleaner.push(size_mb / (await uploadByGleaner(`gleaner-${round}`)));
    speeds.gcloud.push(size_mb / (await uploadByGcloud(`gcloud-${round}`)));
    if (!first) speeds.gleaner.push(size_mb / (await uploadByGleaner(`gleaner-${round}`)));
  }
  const ratios = speeds.gleaner.map((speed, index) => speed / (speeds.gcloud[index] ?? Number.NaN));
  console.log(
    `${streams} streams of ${megabytes} MB, ${rounds} rounds, ${cpus().length} CPUs, load ${loadavg()[0]?.toFixed(1)}`,
  );
  console.log(`gleaner streams upload  ${spread(speeds.gleaner, 0)} MB/s`);
  console.log(`gcloud storage cp       ${spread(speeds.gcloud, 0)} MB/s`);
  console.log(`ratio                   ${spread(ratios, 2)}`);
} finally {
  await cloud.close();
  rmSync(dir, {recursive: true, force: true});
}
