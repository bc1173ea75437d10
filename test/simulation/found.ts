/** Stores a seed that shows each planted mistake. If a stored seed no longer shows its mistake, a search finds another. */
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {spliceAll} from './anchors.ts';
import {MISTAKES} from './mistakes.ts';
import {runSeeds} from './run.ts';
import {simulate} from './world.ts';

const FILE = new URL('./found.json', import.meta.url);
/** The search for a mistake ends after this many worlds. */
const MAX_SEEDS = 3000;

type Seeds = Record<string, number>;

export function storedSeeds(): Seeds {
  return existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : {};
}

/** Returns a seed whose world shows the mistake: the stored seed if it does, else the first that a search finds. */
export async function findMistake(name: string, stored: number | undefined): Promise<number | undefined> {
  const mistake = MISTAKES[name] ?? [];
  if (stored !== undefined) {
    const {violation} = await simulate(stored, {mistake: spliceAll(mistake)});
    if (violation !== undefined) return stored;
  }
  const {violations} = await runSeeds({first: 0, seeds: MAX_SEEDS, mistake, untilFound: true});
  return violations[0]?.seed;
}

/** Checks every stored seed, replaces those that show nothing, and stores all seeds. Returns the mistakes that no world shows. */
export async function refreshSeeds(print: (line: string) => void): Promise<string[]> {
  const known = storedSeeds();
  const seeds: Seeds = {};
  for (const name of Object.keys(MISTAKES)) {
    const seed = await findMistake(name, known[name]);
    if (seed !== undefined) seeds[name] = seed;
    print(`${seed ?? 'not found'}: ${name}`);
  }
  writeFileSync(FILE, `${JSON.stringify(seeds, null, 2)}\n`);
  return Object.keys(MISTAKES).filter(name => !(name in seeds));
}
