/** A process of its own: `build` fills a store file of a size, `measure` measures a scene on a copy of it, and `many` a scene of many runs. */
import {copyFileSync} from 'node:fs';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {SCENES} from './event-scenes.ts';
import {MANY_SCENES} from './many-runs.ts';
import {addTo, noUsage} from './meter.ts';
import {documentsOf, putAll, type Size} from './scene.ts';
import type {Measured, Work} from './scene-work.ts';
import {World} from './world.ts';

const [verb, file = '', workers, streams, latency, what = ''] = process.argv.slice(2);
const size: Size = {workers: Number(workers), streams: Number(streams)};
if (verb === 'build') await build();
else if (verb === 'many') console.log(JSON.stringify([await MANY_SCENES[file]?.()].flat()));
else console.log(JSON.stringify(await measureCopy()));

/** The first tick and the first resync are over: runs have their totals, and worker-api has proved that it works. */
async function build(): Promise<void> {
  const store = openSqliteStore(file);
  await putAll(store, documentsOf(size));
  const world = new World(store, size, {latency_ms: 0});
  await world.tick();
  await world.deliverTasks();
  await store.close();
}

async function measureCopy(): Promise<Measured> {
  const scene = SCENES[what];
  if (!scene) throw new Error(`There is no scene "${what}"`);
  const copy = `${file}.copy`;
  copyFileSync(file, copy);
  const store = openSqliteStore(copy);
  const world = new World(store, size, {latency_ms: Number(latency)});
  const work = await scene(world);
  const counted = await measure(world, work);
  await store.close();
  return {what, ...counted, peak_mb: process.resourceUsage().maxRSS / 1024, ...work.facts?.()};
}

type Round = Omit<Measured, 'what' | 'peak_mb'>;

async function measure(world: World, work: Work): Promise<Round> {
  const rounds = [await measureRound(world, work)];
  while (rounds.length < (work.rounds ?? 1)) {
    await work.again?.();
    rounds.push(await measureRound(world, work));
  }
  return rounds.reduce((best, round) => (round.seconds < best.seconds ? round : best));
}

async function measureRound(world: World, {run, times = 1, less}: Work): Promise<Round> {
  world.resetCounts();
  const [start, cpu] = [performance.now(), process.cpuUsage()];
  await run();
  const seconds = (performance.now() - start) / 1000 / times;
  const {user, system} = process.cpuUsage(cpu);
  const cpu_s = (user + system) / 1e6 / times;
  if (less) addTo(world.usage, less, -1);
  const usage = addTo(noUsage(), world.usage, 1 / times);
  const bucket = {class_a: world.bucket.usage.class_a / times, class_b: world.bucket.usage.class_b / times};
  return {seconds, cpu_s, usage, bucket, published: world.published / times, times};
}
