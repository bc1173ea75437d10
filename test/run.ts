/**
 * Runs the parts of a tier side by side, and ends with one line over all of them: `N passed, N failed, N skipped`.
 *
 *   node test/run.ts [fast|full|long] [PART...]
 *
 * A part that fails prints its output; every part keeps it in `.gleaner/test/PART.log`. A part that is named prints at once.
 */
import {mkdirSync, writeFileSync} from 'node:fs';
import {type Counts, isTier, PARTS, type Part, type Tier} from './parts.ts';
import {ROOT, type Run, runCommand} from './support/process.ts';

const LOGS = `${ROOT}.gleaner/test`;
/** As many as cores: more parts at once make the waits of tests longer than their limits. */
const AT_ONCE = 2;

const {tier, parts} = choose(process.argv.slice(2));
const isAlone = parts.length === 1;
const total: Counts = {passed: 0, failed: 0, skipped: 0};
const failed: string[] = [];
mkdirSync(LOGS, {recursive: true});

const waiting = [...parts];
async function takeParts(): Promise<void> {
  for (let part = waiting.shift(); part; part = waiting.shift()) await runPart(part);
}
await Promise.all(Array.from({length: AT_ONCE}, takeParts));

if (failed.length > 0) console.log(`\nfailed: ${failed.join(', ')}`);
console.log(`\n${summary(total)}`);
process.exitCode = total.failed > 0 || total.passed === 0 ? 1 : 0;

async function runPart(part: Part): Promise<void> {
  const began = performance.now();
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
  if (isAlone) return;
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(`== ${part.name}: ${summary(counts)} in ${seconds} s`);
  if (counts.failed > 0) console.log(output.join('\n'));
  else for (const line of output.filter(isNoteOfSkip)) console.log(line);
}

/** The lines in which mocha, pytest and a check name a skipped test and its reason. */
function isNoteOfSkip(line: string): boolean {
  return /^\s+- |^SKIPPED|^skipped:|Warning:/.test(line);
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
  return {tier, parts: names.length > 0 ? known.filter(({name}) => names.includes(name)) : known};
}
