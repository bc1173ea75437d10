/** `npm run simulate` runs many worlds, or prints the trace of one world. */
import {Command, InvalidArgumentError} from 'commander';
import {KINDS} from './conditions/faults.ts';
import {SIMPLER} from './context.ts';
import {gaps, tableOf} from './coverage.ts';
import {type Case, runSeeds, shrink} from './run.ts';
import {simulate} from './world.ts';

/** The most worlds to shrink, because each needs some tens of runs. */
const MAX_SHRUNK = 10;

/** A parser of whole numbers from `least` on. */
function from(least: number): (text: string) => number {
  return text => {
    const value = Number(text);
    if (text.trim() === '' || !Number.isSafeInteger(value) || value < least)
      throw new InvalidArgumentError(`Expected a whole number of at least ${least}.`);
    return value;
  };
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
  .option('--seeds <count>', 'number of worlds', from(1), 5000)
  .option('--from <seed>', 'first seed', from(0), 0)
  .option('--seed <seed>', 'run only the world of this seed', from(0))
  .option('--without <kinds>', 'with --seed: faults and parts to leave out, separated by commas', names, [])
  .option('--trace', 'with --seed: print every event')
  .parse();

type Chosen = {
  seeds: number;
  from: number;
  seed?: number;
  without: string[];
  trace?: boolean;
};
const chosen = command.opts<Chosen>();

if (chosen.seed !== undefined) await replay(chosen.seed, chosen);
else if (chosen.trace || chosen.without.length > 0) command.error('error: --trace and --without need --seed');
else await search(chosen);

async function replay(seed: number, {without, trace = false}: Chosen): Promise<void> {
  const {events, violation, trace: lines} = await simulate(seed, {without: new Set(without), trace});
  console.log([...lines, violation ?? `seed ${seed} holds: ${events} events`].join('\n'));
  process.exitCode = violation === undefined ? 0 : 1;
}

async function search({from, seeds}: Chosen): Promise<void> {
  const started = performance.now();
  let reported_ms = started;
  let shown = 0;
  const total = await runSeeds({
    first: from,
    seeds,
    onProgress: ({seeds: done, violations}) => {
      for (const {seed, violation} of violations.slice(shown)) console.error(`seed ${seed}: ${violation}`);
      shown = violations.length;
      if (performance.now() - reported_ms < 10_000) return;
      reported_ms = performance.now();
      console.error(`${done} of ${seeds} worlds, ${violations.length} broken`);
    },
  });
  const cases: Case[] = [];
  for (const [index, {seed, violation}] of total.violations.entries())
    cases.push((index < MAX_SHRUNK && (await shrink(seed))) || {seed, without: [], violation});
  process.exitCode = cases.length === 0 ? 0 : 1;
  console.log(`${total.seeds} worlds in ${Math.round((performance.now() - started) / 1000)} s`);
  for (const line of tableOf(total.seen)) console.log(line);
  const missing = gaps(total.seen);
  if (missing.length > 0) console.log(`no world showed ${missing.join(', ')}`);
  for (const found of cases) console.log(`seed ${found.seed}: ${found.violation}\n  ${replayOf(found)}`);
  console.log(cases.length === 0 ? 'every world held' : `${cases.length} worlds broke`);
}

function replayOf({seed, without}: Case): string {
  const option = without.length > 0 ? ` --without '${without}'` : '';
  return `npm run simulate -- --seed ${seed}${option} --trace`;
}
