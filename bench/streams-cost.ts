/**
 * Measures what a stream costs a local cloud: `npm run bench:streams-cost [-- --streams 10,100,400]`. Runs of so many streams of two short
 * samples, one after the other, on two hosts and the tiny model. Prints processor seconds from the upload until the last TPU is gone.
 */
import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {cpus, loadavg, tmpdir} from 'node:os';
import {join} from 'node:path';
import {Command} from 'commander';
import {streamId} from '../shared/domain/names.ts';
import {gleaner, processes, TestHome} from '../test/support/machine/home.ts';
import {processTime} from './process-time.ts';

const {streams: counts} = new Command('bench:streams-cost')
  .option('--streams <counts>', 'streams of each run, with commas between', '10,100,400')
  .parse()
  .opts<{streams: string}>();

const dir = mkdtempSync(join(tmpdir(), 'gleaner-streams-cost-'));
for (const home of ['CONFIG', 'STATE']) process.env[`XDG_${home}_HOME`] = join(dir, home);
const home = await TestHome.start();
try {
  for (const count of counts.split(',').map(Number)) await measure(count);
  console.log(`on ${cpus().length} cores with a load of ${loadavg()[0]?.toFixed(1)}`);
} finally {
  await home.remove();
  rmSync(dir, {recursive: true, force: true});
}

async function measure(count: number): Promise<void> {
  const [folder, run] = [join(dir, `streams-${count}`), `run-${count}`];
  mkdirSync(folder);
  for (let stream = 0; stream < count; stream++) {
    const samples = [1, 2].map(n => `{"text": "sample ${n} of stream ${stream}"}\n`);
    writeFileSync(join(folder, `stream_${streamId(stream)}.jsonl`), samples.join(''));
  }
  const [before, began] = [seconds(), performance.now()];
  const {code, stderr} = await gleaner(['streams', 'upload', folder, '--run', run, '--dir', home.dir]);
  const status = code === 0 ? (await home.runEnds(run))?.run.status : stderr;
  if (status !== 'completed') throw new Error(`Failed to measure ${run}: ${status}`);
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
  const all = processes();
  const below = (pid: number) => all.filter(({ppid}) => ppid === pid);
  const treeOf = (pid: number): number => {
    const {own, ended} = processTime(pid);
    return below(pid).reduce((sum, child) => sum + treeOf(child.pid), own + ended);
  };
  const host = below(home.pid).find(({args}) => args.includes('function-host'));
  const functions = host ? processTime(host.pid).own : 0;
  const cloud = processTime(home.pid).own;
  return {functions, cloud, hosts: treeOf(home.pid) - cloud - functions};
}
