import {withCloudIfThere} from '../../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../../client/connection/connect.ts';
import type {Connection} from '../../../client/connection/connection.ts';
import {TPU_LOCK, workerPython} from '../../../client/python/python.ts';
import {CliError} from '../../../client/text/errors.ts';
import {aligned, bytesText, numberText} from '../../../client/text/format.ts';
import {print, printText, say, warn} from '../../../client/text/output.ts';
import type {Compiled, Numbers, Rate} from '../../../client/views/assumptions.ts';
import {usdPerMillion} from '../../../client/views/rates.ts';
import type {RunSpec} from '../../../shared/contracts/spec/spec.ts';
import {readPrices} from '../../../shared/control-plane/documents/prices.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {chipsOf, type Prices, usdPerHour} from '../../../shared/domain/billing/prices.ts';
import {COMPILED, hostsOfType} from '../../../shared/domain/fleet/accelerators.ts';
import {askWorker} from '../../python/ask-worker.ts';
import {withClock} from '../../terminal/progress-clock.ts';
import {completeIn, type SpecOptions, specOf} from '../spec/spec.ts';
import {priceOrigin, pricesText} from './price-origin.ts';
import {helpLines, helpsOf, limitText, millionText, rateOfStages, sizesOf, workOfProgram} from './stages.ts';

type PreflightOptions = CloudOptions & SpecOptions & {accelerator?: string[]; zone: string};
/** A program with the dollars of a million tokens in full rows, at the speed of its slowest stage. */
export type Answer = Compiled & {
  chips: number;
  hosts: number;
  usd_per_million_tokens: {spot: number | null; on_demand: number | null};
  /** Speed of the slowest stage; null for a program that does not fit. */
  rate: Rate | null;
};

/**
 * Compiles the program of a run for types of TPU that need not exist here, and recommends the cheapest. Exit code 1 if it does not fit into a
 * given type, or into no type of one host.
 */
export async function preflight(options: PreflightOptions): Promise<void> {
  const {accelerator: given, zone, json} = options;
  for (const accelerator of given ?? []) {
    if (!COMPILED.includes(accelerator))
      throw new CliError(`Failed to compile for ${accelerator}: give one of ${COMPILED.join(', ')}`);
  }
  await withCloudIfThere(options, async cloud => {
    const spec = completeIn(cloud, await specOf(options));
    const types = given ?? COMPILED;
    const tried = types.map(accelerator => ({accelerator}));
    const prices = cloud ? await readPrices({store: cloud.store, log: warn}, tried) : LIST_PRICES;
    const programs: Answer[] = [];
    await compilePrograms(spec, types, cloud?.connection, {
      smallest: given === undefined,
      each: program => {
        const answer = answerOf(program, spec, prices, zone);
        programs.push(answer);
        if (!json) printText(rowLines([answer], types).slice(programs.length === 1 ? 0 : 1));
      },
    });
    const recommended = cheapestOf(programs)?.accelerator ?? null;
    const is_google = cloud?.connection.is_google ?? true;
    const lines = remarks(programs, {spec, zone, prices, is_google});
    print<'preflight'>(json, {spec, recommended, programs}, lines);
    const isUsable = given
      ? programs.every(({fits}) => fits)
      : programs.some(({fits, hosts}) => fits && hosts === 1);
    if (!isUsable) process.exitCode = 1;
  });
}

/** The program of a type with its price, at the speed of its slowest stage. */
export function answerOf(program: Compiled, spec: RunSpec, prices: Prices, zone: string): Answer {
  const {accelerator} = program;
  const rate = program.fits ? rateOfStages(workOfProgram(program, spec as Numbers)) : null;
  const usd = (spot: boolean) =>
    rate && usdPerMillion(usdPerHour(prices, {accelerator, spot, zone}), rate.estimate * 3600);
  const size = {chips: chipsOf(accelerator)?.chips ?? 0, hosts: hostsOfType(accelerator)};
  return {...program, ...size, rate, usd_per_million_tokens: {spot: usd(true), on_demand: usd(false)}};
}

/** The program of one host with the lowest price of a million tokens on spot. The first of equals is the smallest. */
export function cheapestOf(programs: readonly Answer[]): Answer | undefined {
  const priced = programs.filter(({hosts, usd_per_million_tokens: {spot}}) => hosts === 1 && spot !== null);
  const usdOf = ({usd_per_million_tokens: {spot}}: Answer) => spot ?? Number.POSITIVE_INFINITY;
  return priced.sort((a, b) => usdOf(a) - usdOf(b))[0];
}

const COLUMNS = [
  ...['TPU', 'fits', 'mesh', 'HBM of a device', 'a step', 'of the peak'],
  ...['chips, tokens/s', 'run, tokens/s', 'spot $/M', 'on demand', 'limited by'],
];
const LEFT = ['TPU', 'fits', 'mesh', 'limited by'];

/** The titles and the rows of programs. Each column has room for what rows print later, because a row is printed as it comes. */
export function rowLines(programs: readonly Answer[], types: readonly string[]): string[] {
  const [longest = ''] = types.toSorted((a, b) => b.length - a.length);
  const widest = [longest, '', '16x16', '99.9 GB of 99.9 GB', '9999.9 ms', '', '', '', '$0.0000', '$0.0000'];
  const cells = [COLUMNS, widest, ...programs.map(cellsOf)];
  const right = COLUMNS.map(title => !LEFT.includes(title));
  return aligned(cells, right).filter((_, index) => index !== 1);
}

function cellsOf(program: Answer): string[] {
  const limit = bytesText(program.hbm_limit_bytes);
  const {accelerator, rate} = program;
  if (!program.fits || !rate) return [accelerator, 'no', '', limit];
  const {spot, on_demand} = program.usd_per_million_tokens;
  const used = Object.values(program.hbm_bytes).reduce((sum, bytes) => sum + bytes, 0);
  return [
    ...[accelerator, 'yes', program.mesh, `${bytesText(used)} of ${limit}`],
    ...[`${program.estimated_ms.toFixed(1)} ms`, `${Math.round(program.share_of_peak * 100)} %`],
    ...[program.tokens_per_s, rate.estimate].map(each => numberText(Math.round(each))),
    ...[money(spot), money(on_demand), limitText(rate)],
  ];
}

type Asked = {spec: RunSpec; zone: string; prices: Prices; is_google: boolean};

/** Lines below the table: what does not fit, what has no price, the recommendation, and what makes it cheaper. */
export function remarks(programs: readonly Answer[], {spec, zone, prices, is_google}: Asked): string[] {
  const cheapest = cheapestOf(programs);
  const fitting = programs.filter(each => each.fits);
  const shown = cheapest ?? fitting[0];
  return [
    ...programs.flatMap(program => (program.fits ? [] : [`${program.accelerator}: ${program.reason}`])),
    ...fitting.flatMap(({accelerator, hosts, tokens_per_s, rate, usd_per_million_tokens: {spot}}) => {
      if (hosts > 1)
        return [
          `${accelerator} is listed for comparison: it has ${hosts} hosts, and a run uses TPUs of one host`,
        ];
      const [run, chips] = [rate?.estimate ?? 0, tokens_per_s].map(each => numberText(Math.round(each)));
      const text = `${accelerator} has no price here, so it cannot be recommended; a run gets ${run} tokens/s on it (its chips: ${chips})`;
      return spot === null ? [text] : [];
    }),
    ...sizesOf(shown ?? programs[0] ?? {}),
    ...(shown?.fits && shown.rate ? waitLines(shown, spec, prices, zone) : []),
    ...(cheapest?.rate ? [recommendation(cheapest, cheapest.rate, {spec, zone, prices, is_google})] : []),
    `Times are estimates of the TPU compiler for full rows, and no TPU has run them. \`gleaner estimate\` adds padding, starts and preemptions of your streams.`,
  ];
}

function recommendation({accelerator, usd_per_million_tokens}: Answer, rate: Rate, asked: Asked): string {
  const {zone, prices, is_google} = asked;
  const origin = pricesText(priceOrigin(prices, accelerator, zone, is_google), zone, Date.now());
  const price = `${money(usd_per_million_tokens.spot)} a million tokens on spot in ${zone}`;
  return `Recommended: ${accelerator}, for ${price}, limited by ${limitText(rate)} (${origin}).`;
}

/** What the chips of the recommended type wait for, and what helps. A sample is as long as a row. */
function waitLines(program: Answer & {fits: true}, spec: RunSpec, prices: Prices, zone: string): string[] {
  const {accelerator, layers, shape, rate} = program;
  const usd_per_hour = usdPerHour(prices, {accelerator, spot: true, zone});
  const stored = {...spec, layers};
  const priced = {tokens_per_sample: Number(shape.split('x')[1]), usd_per_hour};
  const helps = helpsOf(workOfProgram(program, spec as Numbers), stored, priced);
  return rate ? helpLines(accelerator, rate, stored, helps) : [];
}

const money = (usd: number | null) => (usd === null ? 'unknown' : millionText(usd));

/**
 * Compiles the program of a run for types of TPU, by the TPU compiler on this machine. `smallest`: of each generation, no type after the first
 * that the program fits into. `each` gets a program as soon as it is compiled. Throws `CliError` for a model that cannot be used, and for a
 * type that the compiler is not set up for.
 */
export async function compilePrograms(
  spec: RunSpec,
  accelerators: readonly string[],
  connection: Connection | undefined,
  {smallest = false, each = () => {}}: {smallest?: boolean; each?: (program: Compiled) => void} = {},
): Promise<Compiled[]> {
  await workerPython(say, TPU_LOCK); // minutes at the first time, which are not the compiler's
  const args = ['--accelerators', accelerators.join(','), ...(smallest ? ['--smallest'] : [])];
  const programs: Compiled[] = [];
  await withClock('The preflight has been running', clock =>
    askWorker('gleaner_worker.preflight', spec, args, connection, {
      lock: TPU_LOCK,
      answer: program => {
        programs.push(program as Compiled);
        each(program as Compiled);
      },
      progress: line => {
        const number = accelerators.findIndex(accelerator => line.endsWith(` ${accelerator}`)) + 1;
        clock.what = `${line}, type ${number} of ${accelerators.length}: the preflight has been running`;
      },
    }),
  );
  return programs;
}
