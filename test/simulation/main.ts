/** `npm run simulate`: many worlds, or one of them with everything that happened in it. */
import {readFileSync, writeFileSync} from 'node:fs';
import {Command, InvalidArgumentError} from 'commander';
import {gaps, tableOf} from './coverage.ts';
import {KINDS} from './faults.ts';
import {type Case, runSeeds, shrink} from './run.ts';
import {SIMPLER} from './setting.ts';
import {simulate} from './world.ts';

const KEPT = new URL('./regressions.json', import.meta.url);

function number(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new InvalidArgumentError('a whole number');
  return value;
}

function names(text: string): string[] {
  const given = text.split(',').filter(name => name !== '');
  const unknown = given.filter(name => ![...KINDS, ...SIMPLER].includes(name));
  if (unknown.length > 0)
    throw new InvalidArgumentError(`unknown: ${unknown}; known: ${[...KINDS, ...SIMPLER].join(', ')}`);
  return given;
}

const command = new Command('simulate')
  .description(
    'Runs the real functions in simulated worlds full of faults, and checks that nothing is lost, doubled or left.',
  )
  .option('--seeds <count>', 'how many worlds', number, 5000)
  .option('--from <seed>', 'the first of them', number, 0)
  .option('--seed <seed>', 'this one alone', number)
  .option('--without <kinds>', 'with --seed: what the world does not have, with commas between', names, [])
  .option('--trace', 'with --seed: print everything that happened')
  .option('--json', 'print the sum as JSON')
  .option('--no-keep', `do not add what breaks to regressions.json`)
  .parse();

type Chosen = {
  seeds: number;
  from: number;
  seed?: number;
  without: string[];
  trace?: boolean;
  json?: boolean;
  keep: boolean;
};
const chosen = command.opts<Chosen>();

if (chosen.seed === undefined) await search(chosen);
else await replay(chosen.seed, chosen);

async function replay(seed: number, {without, trace = false}: Chosen): Promise<void> {
  const outcome = await simulate(seed, {without: new Set(without), trace});
  for (const line of outcome.trace) console.log(line);
  console.log(outcome.violation ?? `seed ${seed} holds: ${outcome.events} events`);
  process.exitCode = outcome.violation === undefined ? 0 : 1;
}

async function search({from, seeds, json, keep}: Chosen): Promise<void> {
  const began = performance.now();
  const rate = (done: number) => done / ((performance.now() - began) / 1000);
  let told = began;
  const total = await runSeeds({
    first: from,
    seeds,
    onProgress: ({seeds: done, violations}) => {
      if (performance.now() - told < 10_000) return;
      told = performance.now();
      console.error(
        `${done} of ${seeds} worlds, ${rate(done).toFixed(0)} a second, ${violations.length} broken`,
      );
    },
  });
  const worlds_per_s = Math.round(rate(total.seeds));
  if (json) console.log(JSON.stringify({...total, worlds_per_s}));
  else {
    console.log(
      `${total.seeds} worlds, ${worlds_per_s} a second, ${Math.round(total.events / total.seeds)} events each`,
    );
    for (const line of tableOf(total.seen)) console.log(line);
    const lacking = gaps(total.seen);
    if (lacking.length > 0) console.log(`no world showed ${lacking.join(', ')}`);
  }
  // The sum alone is JSON.
  const say = json ? console.error : console.log;
  for (const {seed} of total.violations.slice(0, 10)) {
    const found = await shrink(seed);
    if (!found) continue;
    say(explain(found));
    if (keep) keepForTests(found);
  }
  say(total.violations.length === 0 ? 'every world held' : `${total.violations.length} worlds broke`);
  process.exitCode = total.violations.length === 0 ? 0 : 1;
}

function explain({seed, without, violation}: Case): string {
  const but = without.length > 0 ? ` --without '${without}'` : '';
  return `seed ${seed}: ${violation}\n  npm run simulate -- --seed ${seed}${but} --trace`;
}

function keepForTests(found: Case): void {
  const kept: Case[] = JSON.parse(readFileSync(KEPT, 'utf8'));
  if (!kept.some(({seed}) => seed === found.seed)) kept.push(found);
  writeFileSync(KEPT, `${JSON.stringify(kept, null, 2)}\n`);
}
