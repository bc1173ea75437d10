/**
 * Runs the parts of a tier side by side, and ends with one line over all of them: `N passed, N failed, N skipped`.
 *
 *   node test/run.ts [fast|full|long] [PART...]
 *
 * A part prints its slowest tests, and all of its output when it fails; `.gleaner/test/PART.log` keeps the output. A part that runs
 * alone prints at once. The table before the last line says where the time went.
 */
import {mkdirSync, writeFileSync} from 'node:fs';
import {cpus} from 'node:os';
import {type Counts, isTier, PARTS, type Part, type Tier} from './parts.ts';
import {ROOT, type Run, runCommand} from './support/machine/process.ts';

const LOGS = `${ROOT}.gleaner/test`;
/** Parts side by side. A third part computes while two wait for repeated calls. */
const AT_ONCE: Record<Tier, number> = {fast: 3, full: 3, long: 2};

const {tier, parts} = choose(process.argv.slice(2));
const isAlone = parts.length === 1;
const total: Counts = {passed: 0, failed: 0, skipped: 0};
const failed: string[] = [];
const spans: string[] = [];
const begin = now();
mkdirSync(LOGS, {recursive: true});

const waiting = [...parts];
async function takeParts(): Promise<void> {
  for (let part = waiting.shift(); part; part = waiting.shift()) await runPart(part);
}
await Promise.all(Array.from({length: AT_ONCE[tier]}, takeParts));

console.log(['', ' wall s  cores busy', ...spans, spanOf('all', begin)].join('\n'));
if (failed.length > 0) console.log(`\nfailed: ${failed.join(', ')}`);
console.log(`\n${summary(total)}`);
process.exitCode = total.failed > 0 || total.passed === 0 ? 1 : 0;

async function runPart(part: Part): Promise<void> {
  const began = now();
  const output: string[] = [];
  const note = (line: string): void => {
    output.push(line);
    if (isAlone) console.log(line);
  };
  const run: Run = (command, args, env = {}) => runCommand(command, args, env, note);
  const counts = await part.run(run, tier).catch((error: Error): Counts => {
    note(String(error.stack));
    return {passed: 0, failed: 1, skipped: 0};
  });
  writeFileSync(`${LOGS}/${part.name}.log`, `${output.join('\n')}\n`);
  for (const key of ['passed', 'failed', 'skipped'] as const) total[key] += counts[key];
  if (counts.failed > 0) failed.push(part.name);
  spans.push(spanOf(part.name, began));
  if (isAlone) return;
  console.log(`== ${part.name}: ${summary(counts)}`);
  if (counts.failed > 0) console.log(output.join('\n'));
  else for (const line of output.filter(isNote)) console.log(line);
}

/** The lines in which mocha, pytest and a check name a skipped test and its reason, a slow test and its seconds, or the lines of a folder. */
function isNote(line: string): boolean {
  return /^\s+- |^lines |^SKIPPED|^skipped:|Warning:|^\s*\d+\.\d+ ?s /.test(line);
}

/** The time, and the time that the cores have computed and in all. */
function now(): {at_ms: number; busy_ms: number; all_ms: number} {
  const times = cpus().flatMap(core => Object.entries(core.times));
  const sum = (some: typeof times) => some.reduce((total, [, ms]) => total + ms, 0);
  return {
    at_ms: performance.now(),
    busy_ms: sum(times.filter(([kind]) => kind !== 'idle')),
    all_ms: sum(times),
  };
}

/** A line of the table: a part, its seconds, and how busy all cores were in this time. */
function spanOf(name: string, from: ReturnType<typeof now>): string {
  const to = now();
  const busy = (to.busy_ms - from.busy_ms) / (to.all_ms - from.all_ms);
  const seconds = (to.at_ms - from.at_ms) / 1000;
  return `${seconds.toFixed(0).padStart(7)}${(busy * 100).toFixed(0).padStart(10)} %  ${name}`;
}

function summary({passed, failed, skipped}: Counts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

function choose(args: string[]): {tier: Tier; parts: Part[]} {
  const [first = ''] = args;
  const tier = isTier(first) ? first : 'full';
  const names = isTier(first) ? args.slice(1) : args;
  const known = PARTS.filter(({tiers}) => tiers.includes(tier));
  const unknown = names.filter(name => !known.some(part => part.name === name));
  if (unknown.length > 0) {
    console.error(`Tier ${tier} has no part ${unknown}; it has ${known.map(({name}) => name).join(', ')}`);
    process.exit(1);
  }
  const all = known.filter(({isAsked}) => tier !== 'fast' || !isAsked);
  return {tier, parts: names.length > 0 ? known.filter(({name}) => names.includes(name)) : all};
}
