/**
 * Measures the code loop on a local cloud of two workers: `npm run bench:code-loop [-- --rounds N]`. First, the time from
 * `gleaner update` until the new code runs on both hosts. Then, the time from a submitted job until its process runs on an idle worker.
 * Processes report their start to this program over HTTP.
 */
import {createServer} from 'node:http';
import type {AddressInfo} from 'node:net';
import {cpus, loadavg} from 'node:os';
import {setTimeout as sleep} from 'node:timers/promises';
import {Command} from 'commander';
import {GitServer} from '../test/support/fakes/git-server.ts';
import {gleaner, TestHome} from '../test/support/machine/home.ts';
import {spread} from './spread.ts';

const WORKERS = 2;
const LONGEST_WAIT_S = 300;

const {rounds} = new Command('bench:code-loop')
  .option('--rounds <n>', 'updates, and submitted jobs', Number, 7)
  .parse()
  .opts<{rounds: number}>();

/** Starts that processes reported, as `VERSION/JOB`. */
const started = new Map<string, number>();
const reports = createServer((request, response) => {
  started.set((request.url ?? '').slice(1), performance.now());
  response.end();
});
await new Promise<void>(resolve => reports.listen(0, '127.0.0.1', resolve));

const git = await GitServer.start();
// The heartbeats of Google Cloud, so that the pool's poll_s of 2 decides.
const home = await TestHome.start(WORKERS, {
  ...{GLEANER_POLL_S: '2', GLEANER_HEARTBEAT_S: '60', GLEANER_LEASE_S: '240', GLEANER_SILENT_S: '300'},
});
try {
  const updates = await measureUpdates();
  const jobs = await measureJobs();
  print({updates, jobs});
} finally {
  await home.remove();
  await git.close();
  reports.close();
}

/** A program that reports its start and then waits. */
function program(version: string): string {
  const {port} = reports.address() as AddressInfo;
  const url = `"http://127.0.0.1:${port}/${version}/" + os.environ["JOB_ID"]`;
  return `import os, time, urllib.request\nurllib.request.urlopen(${url})\ntime.sleep(3600)\n`;
}

async function measureUpdates(): Promise<number[]> {
  const jobs = Array.from({length: WORKERS}, (_, number) => `loop-${number}`);
  git.commit('main', 'main.py', program('first'));
  await call('update', 'tpu', '--repo', git.url, '--branch', 'main');
  for (const job of jobs)
    await home.publish({action: 'submit', job, command: ['python', 'main.py'], timeout: 3600});
  await startOf('first', jobs);
  const seconds: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const version = `update-${round}`;
    git.commit('main', 'main.py', program(version));
    // The phase of the heartbeats is random.
    await sleep(Math.random() * 2000);
    const began = performance.now();
    const command = call('update', 'tpu', '--branch', 'main');
    seconds.push((await startOf(version, jobs)) - began);
    await command;
  }
  return seconds.map(ms => ms / 1000);
}

async function measureJobs(): Promise<number[]> {
  // Without a tick the workers stay, although no job waits.
  await home.fault('drop', 'tick');
  for (let number = 0; number < WORKERS; number++) await call('jobs', 'cancel', `loop-${number}`);
  const seconds: number[] = [];
  for (let round = 0; round < rounds; round++) {
    await sleep(5000 + Math.random() * 2000);
    const [job, version] = [`job-${round}`, `job-${round}`];
    const began = performance.now();
    const command = ['python', '-c', program(version).replace('3600', '0')];
    await home.publish({action: 'submit', job, command});
    seconds.push((await startOf(version, [job])) - began);
  }
  return seconds.map(ms => ms / 1000);
}

/** Time at which the last of these jobs reported a version. */
async function startOf(version: string, jobs: readonly string[]): Promise<number> {
  const end = performance.now() + LONGEST_WAIT_S * 1000;
  for (;;) {
    const times = jobs.map(job => started.get(`${version}/${job}`));
    if (times.every(time => time !== undefined)) return Math.max(...times);
    if (performance.now() > end) throw new Error(`${version} does not run after ${LONGEST_WAIT_S} s`);
    await sleep(10);
  }
}

async function call(...args: string[]): Promise<void> {
  const {code, stderr} = await gleaner([...args, '--dir', home.dir, '--json']);
  if (code !== 0) throw new Error(`gleaner ${args.join(' ')} ended with ${code}: ${stderr}`);
}

function print({updates, jobs}: {updates: number[]; jobs: number[]}): void {
  console.log(`gleaner update to new code on ${WORKERS} hosts   ${spread(updates, 1)} s, ${rounds} rounds`);
  console.log(`submitted job to its process, idle worker  ${spread(jobs, 1)} s`);
  console.log(`on ${cpus().length} cores with a load of ${loadavg()[0]?.toFixed(1)}`);
}
