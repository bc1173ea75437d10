/**
 * Measures what a stream costs a local cloud: `npm run bench:streams-cost [-- --streams 10,100,400]`. Runs of so many streams of two short
 * samples, one after the other, on two hosts and the tiny model. Prints processor seconds from the upload until the last TPU is gone.
 */
import {execFile, spawn} from 'node:child_process';
import {mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {cpus, loadavg, tmpdir} from 'node:os';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';
import {Command} from 'commander';
import {openCloud} from '../client/cloud/cloud.ts';
import {running, runningCloud} from '../client/connection/connect.ts';
import {readRun} from '../client/views/run-state.ts';

const MAIN = fileURLToPath(new URL('../cli/main.ts', import.meta.url));
/** Ticks of the kernel in a second: every Linux of today has 100. */
const CLOCK_HZ = 100;

const {streams: counts} = new Command('bench:streams-cost')
  .option('--streams <counts>', 'streams of each run, with commas between', '10,100,400')
  .parse()
  .opts<{streams: string}>();

const dir = mkdtempSync(join(tmpdir(), 'gleaner-streams-cost-'));
for (const home of ['CONFIG', 'STATE']) process.env[`XDG_${home}_HOME`] = join(dir, home);
const up = spawn(process.execPath, [MAIN, 'local', 'up', '--port', '0', '--dir', dir], {stdio: 'pipe'});
try {
  await new Promise(resolve => up.stdout.once('data', resolve));
  up.stdout.resume();
  for (const count of counts.split(',').map(Number)) await measure(count);
  console.log(`on ${cpus().length} cores with a load of ${loadavg()[0]?.toFixed(1)}`);
} finally {
  up.kill('SIGTERM');
  await until(async () => up.exitCode !== null || up.signalCode !== null);
  rmSync(dir, {recursive: true, force: true});
}

async function measure(count: number): Promise<void> {
  const folder = join(dir, `streams-${count}`);
  mkdirSync(folder);
  for (let stream = 0; stream < count; stream++)
    writeFileSync(
      join(folder, `stream_${String(stream).padStart(3, '0')}.jsonl`),
      [1, 2].map(n => `{"text": "sample ${n} of stream ${stream}"}\n`).join(''),
    );
  const [before, began] = [seconds(), performance.now()];
  const run = `run-${count}`;
  const upload = ['streams', 'upload', folder, '--run', run, '--dir', dir];
  await promisify(execFile)(process.execPath, [MAIN, ...upload]);
  const {store} = openCloud(running(await runningCloud({dir})));
  await until(async () => {
    const state = await readRun(store, run);
    return state.run !== undefined && state.run.status === 'completed' && state.tpus.length === 0;
  });
  await store.close();
  const after = seconds();
  const used = (['functions', 'cloud', 'hosts'] as const).map(
    part => `${part} ${(after[part] - before[part]).toFixed(1)}`,
  );
  console.log(
    `${count} streams: ${used.join(' s, ')} s; ${((performance.now() - began) / 1000).toFixed(0)} s of time`,
  );
}

/** Processor seconds so far of the functions, of the cloud's own process, and of every host, those that have ended included. */
function seconds() {
  const all = readdirSync('/proc').flatMap(pid => (/^\d+$/.test(pid) ? statOf(pid) : []));
  const childrenOf = (pid: number) => all.filter(({parent}) => parent === pid);
  const treeOf = (pid: number): number =>
    childrenOf(pid).reduce((sum, child) => sum + child.own + child.ended + treeOf(child.pid), 0);
  const self = all.find(({pid}) => pid === up.pid) ?? {own: 0, ended: 0};
  const functions = childrenOf(up.pid ?? 0).find(({text}) => text.includes('function-host'))?.own ?? 0;
  return {functions, cloud: self.own, hosts: self.ended + treeOf(up.pid ?? 0) - functions};
}

/** A process that has ended meanwhile is left out. */
function statOf(pid: string) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number);
    const [parent = 0, user = 0, system = 0, ended_user = 0, ended_system = 0] = [1, 11, 12, 13, 14].map(
      n => fields[n],
    );
    const text = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    return [
      {
        pid: Number(pid),
        parent,
        own: (user + system) / CLOCK_HZ,
        ended: (ended_user + ended_system) / CLOCK_HZ,
        text,
      },
    ];
  } catch {
    return [];
  }
}

async function until(isDone: () => Promise<boolean>): Promise<void> {
  while (!(await isDone())) await sleep(200);
}
