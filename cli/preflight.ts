import type {RunSpec} from '../shared/contracts/spec.ts';
import {readPrices} from '../shared/control-plane/documents/prices.ts';
import {LIST_PRICES} from '../shared/domain/billing/list-prices.ts';
import {chipsOf, usdPerHour} from '../shared/domain/billing/prices.ts';
import {COMPILED, hostsOfType} from '../shared/domain/fleet/accelerators.ts';
import {withCloudIfThere} from './cloud/cloud.ts';
import type {CloudOptions} from './cloud/connect.ts';
import type {Connection} from './cloud/connection.ts';
import {askWorker} from './python/ask-worker.ts';
import {TPU_LOCK, workerPython} from './python/python.ts';
import type {Compiled} from './run/estimate/assumptions.ts';
import {type Upload, uploadOf, uploadText} from './run/estimate/upload-share.ts';
import {completeIn, type SpecOptions, specOf} from './run/spec.ts';
import {CliError} from './terminal/errors.ts';
import {bytesText, dollarText, numberText, table} from './terminal/format.ts';
import {print, say, warn} from './terminal/output.ts';
import {withClock} from './terminal/progress-clock.ts';

export type PreflightOptions = CloudOptions & SpecOptions & {accelerator?: string[]; zone: string};
/** A program with the dollars of a million tokens in full rows, while the chips compute. */
export type Answer = Compiled & {
  chips: number;
  hosts: number;
  usd_per_million_tokens: {spot: number | null; on_demand: number | null};
  /** Null for a program that does not fit, and for tokens that a sample chooses. */
  upload: Upload | null;
};

/**
 * Compiles the program of a run for types of TPU that need not exist here, and recommends the cheapest. Exit code 1 if it does not fit into a
 * given type, or into no type of one host.
 */
export async function preflight(options: PreflightOptions): Promise<void> {
  const {accelerator: given, zone} = options;
  for (const accelerator of given ?? []) {
    if (!COMPILED.includes(accelerator))
      throw new CliError(`Failed to compile for ${accelerator}: give one of ${COMPILED.join(', ')}`);
  }
  await withCloudIfThere(options, async cloud => {
    const spec = completeIn(cloud, await specOf(options));
    const types = given ?? COMPILED;
    const compiled = await compilePrograms(spec, types, cloud?.connection, {smallest: given === undefined});
    const tried = types.map(accelerator => ({accelerator}));
    const prices = cloud ? await readPrices({store: cloud.store, log: warn}, tried) : LIST_PRICES;
    const programs = compiled.map((program): Answer => {
      const {accelerator} = program;
      const usd = (spot: boolean) => {
        const hour = usdPerHour(prices, {accelerator, spot, zone});
        return hour === null || !program.fits ? null : hour / 3600 / (program.tokens_per_s / 1e6);
      };
      const size = {chips: chipsOf(accelerator)?.chips ?? 0, hosts: hostsOfType(accelerator)};
      const stored = program.fits ? program.stored_bytes_per_token : null;
      const upload = program.fits && stored !== null ? uploadOf(program.tokens_per_s, stored) : null;
      return {...program, ...size, upload, usd_per_million_tokens: {spot: usd(true), on_demand: usd(false)}};
    });
    const recommended = cheapestOf(programs)?.accelerator ?? null;
    print<'preflight'>(options.json, {spec, recommended, programs}, linesOf(programs, zone, spec));
    const isUsable = given
      ? programs.every(({fits}) => fits)
      : programs.some(({fits, hosts}) => fits && hosts === 1);
    if (!isUsable) process.exitCode = 1;
  });
}

/** The program of one host with the lowest price of a million tokens on spot. The first of equals is the smallest. */
export function cheapestOf(programs: readonly Answer[]): Answer | undefined {
  const priced = programs.filter(({hosts, usd_per_million_tokens: {spot}}) => hosts === 1 && spot !== null);
  const usdOf = ({usd_per_million_tokens: {spot}}: Answer) => spot ?? Number.POSITIVE_INFINITY;
  return priced.sort((a, b) => usdOf(a) - usdOf(b))[0];
}

export function linesOf(
  programs: readonly Answer[],
  zone: string,
  spec: Pick<RunSpec, 'dtype' | 'tokens'>,
): string[] {
  const columns = [
    ...['TPU', 'fits', 'mesh', 'HBM of a device', 'a step', 'tokens/s', 'of the peak'],
    ...['spot $/M tokens', 'on demand'],
  ];
  const rows = programs.map(program => {
    const limit = bytesText(program.hbm_limit_bytes);
    if (!program.fits) return [program.accelerator, 'no', '', limit, '', '', '', '', ''];
    const {spot, on_demand} = program.usd_per_million_tokens;
    const used = Object.values(program.hbm_bytes).reduce((sum, bytes) => sum + bytes, 0);
    return [
      ...[program.accelerator, 'yes', program.mesh, `${bytesText(used)} of ${limit}`],
      ...[`${program.estimated_ms.toFixed(1)} ms`, numberText(program.tokens_per_s)],
      ...[`${Math.round(program.share_of_peak * 100)} %`, money(spot), money(on_demand)],
    ];
  });
  return [
    ...table(
      columns.map((title, index) => ({title, right: index >= 3})),
      rows,
    ),
    ...programs.flatMap(program => (program.fits ? [] : [`${program.accelerator}: ${program.reason}`])),
    ...programs.flatMap(({fits, hosts, accelerator}) =>
      fits && hosts > 1
        ? [`${accelerator} is here to compare: it has ${hosts} hosts, and a run uses TPUs of one host`]
        : [],
    ),
    ...programs.flatMap(({hosts, upload, layers, accelerator}) => {
      const text = upload && hosts === 1 ? uploadText(upload, {...spec, layers, accelerator}) : undefined;
      return text ? [`${accelerator}: ${text}`] : [];
    }),
    ...recommendation(programs, zone),
    `Times are estimates of the TPU compiler for full rows, and no TPU has run them; prices are those of ${zone}. \`gleaner estimate\` adds padding, starts, uploads and preemptions.`,
  ];
}

function recommendation(programs: readonly Answer[], zone: string): string[] {
  const cheapest = cheapestOf(programs);
  if (!cheapest) return [];
  const usd = money(cheapest.usd_per_million_tokens.spot);
  return [`Recommended: ${cheapest.accelerator}, for ${usd} a million tokens on spot in ${zone}.`];
}

function money(usd: number | null): string {
  return usd === null ? 'unknown' : dollarText(usd);
}

/**
 * Compiles the program of a run for types of TPU, by the TPU compiler on this machine. `smallest`: of each generation, no type after the first
 * that the program fits into. Throws `CliError` for a model that cannot be used, and for a type that the compiler is not set up for.
 */
export async function compilePrograms(
  spec: RunSpec,
  accelerators: readonly string[],
  connection: Connection | undefined,
  {smallest} = {smallest: false},
): Promise<Compiled[]> {
  await workerPython(say, TPU_LOCK); // minutes at the first time, which are not the compiler's
  const args = ['--accelerators', accelerators.join(','), ...(smallest ? ['--smallest'] : [])];
  const programs = await withClock('The preflight has worked', () =>
    askWorker('gleaner_worker.preflight', spec, args, connection, TPU_LOCK),
  );
  return programs as Compiled[];
}
