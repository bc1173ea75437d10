/** The seeds that show the planted mistakes, stored as hints. A mistake that its seed no longer shows is searched for. */
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {MISTAKES} from './mistakes.ts';
import {runSeeds} from './run.ts';

const FILE = new URL('./found.json', import.meta.url);
/** A mistake that this many worlds do not show stays unfound. */
const ENOUGH = 3000;

type Seeds = Record<string, number>;

export function storedSeeds(): Seeds {
  return existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : {};
}

/** A seed whose world shows the mistake: the hint where it does, else the first that a search finds. */
export async function findMistake(mistake: string, hint: number | undefined): Promise<number | undefined> {
  if (hint !== undefined && (await search(mistake, hint, 1)) !== undefined) return hint;
  return search(mistake, 0, ENOUGH);
}

async function search(mistake: string, first: number, seeds: number): Promise<number | undefined> {
  const {violations} = await runSeeds({first, seeds, mistake, untilFound: true});
  return violations[0]?.seed;
}

/** Checks every stored seed, searches where one fails, and stores the seeds again. Returns the mistakes that no world shows. */
export async function refreshSeeds(say: (line: string) => void): Promise<string[]> {
  const known = storedSeeds();
  const seeds: Seeds = {};
  for (const {name} of MISTAKES) {
    const seed = await findMistake(name, known[name]);
    if (seed !== undefined) seeds[name] = seed;
    say(`${seed ?? 'not found'}: ${name}`);
  }
  writeFileSync(FILE, `${JSON.stringify(seeds, null, 2)}\n`);
  return MISTAKES.map(({name}) => name).filter(name => !(name in seeds));
}
