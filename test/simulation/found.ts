/** Stores a seed that shows each planted mistake. If a stored seed no longer shows its mistake, a search finds another. */
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {MISTAKES} from './mistakes.ts';
import {spliceAll} from './planting/anchors.ts';
import {runSeeds} from './run.ts';
import {simulate} from './world.ts';

const FILE = new URL('./found.json', import.meta.url);
/** The search for a mistake ends after this many worlds. */
const MAX_SEEDS = 3000;
/** Before the search, the seeds that show most of the other mistakes are tried. */
const MAX_TRIED = 8;

type Seeds = Record<string, number>;

export function storedSeeds(): Seeds {
  return existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : {};
}

/** True if the world of the seed breaks with the mistake. */
export async function breaks(seed: number, name: string): Promise<boolean> {
  const mistake = spliceAll(MISTAKES[name] ?? []);
  return (await simulate(seed, {mistake})).violation !== undefined;
}

const held = new Map<number, boolean>();

/** True if the world of the seed breaks with the mistake, and holds without it. */
async function shows(seed: number, name: string): Promise<boolean> {
  if (!(await breaks(seed, name))) return false;
  const holds = held.get(seed) ?? (await simulate(seed)).violation === undefined;
  held.set(seed, holds);
  return holds;
}

/** Returns a seed whose world shows the mistake: the stored seed, one that shows others, or the first that a search finds. */
export async function findMistake(name: string, seeds: Seeds): Promise<number | undefined> {
  const stored = seeds[name];
  for (const seed of new Set([...(stored === undefined ? [] : [stored]), ...commonest(seeds)]))
    if (await shows(seed, name)) return seed;
  const {violations} = await runSeeds({
    first: 0,
    seeds: MAX_SEEDS,
    mistake: MISTAKES[name] ?? [],
    untilFound: true,
  });
  return violations[0]?.seed;
}

/** The seeds that show most mistakes. */
function commonest(seeds: Seeds): number[] {
  const counts = new Map<number, number>();
  for (const seed of Object.values(seeds)) counts.set(seed, (counts.get(seed) ?? 0) + 1);
  return [...counts.keys()].sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0)).slice(0, MAX_TRIED);
}

/** Checks every stored seed, replaces those that show nothing, and stores all seeds. Returns the mistakes that no world shows. */
export async function refreshSeeds(print: (line: string) => void): Promise<string[]> {
  const known = storedSeeds();
  const seeds: Seeds = {};
  for (const name of Object.keys(MISTAKES)) {
    const seed = await findMistake(name, known);
    if (seed !== undefined) seeds[name] = seed;
    print(`${seed ?? 'not found'}: ${name}`);
    writeFileSync(FILE, `${JSON.stringify({...known, ...seeds}, null, 2)}\n`);
  }
  writeFileSync(FILE, `${JSON.stringify(seeds, null, 2)}\n`);
  return Object.keys(MISTAKES).filter(name => !(name in seeds));
}
