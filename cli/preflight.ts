import type {RunSpec} from '../shared/contracts/spec.ts';
import {readPrices} from '../shared/control-plane/documents/prices.ts';
import {LIST_PRICES} from '../shared/domain/billing/list-prices.ts';
import {usdPerHour} from '../shared/domain/billing/prices.ts';
import {COMPILED} from '../shared/domain/fleet/accelerators.ts';
import {withCloudIfThere} from './cloud/cloud.ts';
import type {CloudOptions} from './cloud/connect.ts';
import type {Connection} from './cloud/connection.ts';
import {askWorker} from './python/ask-worker.ts';
import {TPU_LOCK, workerPython} from './python/python.ts';
import type {Compiled} from './run/estimate/assumptions.ts';
import {completeIn, type SpecOptions, specOf} from './run/spec.ts';
import {CliError} from './terminal/errors.ts';
import {bytesText, dollarText, numberText, table} from './terminal/format.ts';
import {print, say, warn} from './terminal/output.ts';
import {withClock} from './terminal/progress-clock.ts';

export type PreflightOptions = CloudOptions & SpecOptions & {accelerator: string[]; zone: string};
/** A program with the dollars of a million tokens in full rows, while the chips compute. */
type Answer = Compiled & {usd_per_million_tokens: {spot: number | null; on_demand: number | null}};

/** Compiles the program of a run for types of TPU that need not exist here. Exit code 1 if it does not fit into one of them. */
export async function preflight(options: PreflightOptions): Promise<void> {
  for (const accelerator of options.accelerator) {
    if (!COMPILED.includes(accelerator))
      throw new CliError(`Failed to compile for ${accelerator}: give one of ${COMPILED.join(', ')}`);
  }
  await withCloudIfThere(options, async cloud => {
    const spec = completeIn(cloud, await specOf(options));
    const types = options.accelerator.map(accelerator => ({accelerator}));
    const prices = cloud ? await readPrices({store: cloud.store, log: warn}, types) : LIST_PRICES;
    const programs: Answer[] = [];
    for (const accelerator of options.accelerator) {
      const compiled = await compileProgram(spec, accelerator, cloud?.connection);
      const usd = (spot: boolean) => {
        const hour = usdPerHour(prices, {accelerator, spot, zone: options.zone});
        return hour === null || !compiled.fits ? null : hour / 3600 / (compiled.tokens_per_s / 1e6);
      };
      programs.push({...compiled, usd_per_million_tokens: {spot: usd(true), on_demand: usd(false)}});
    }
    print<'preflight'>(options.json, {spec, programs}, linesOf(programs, options.zone));
    if (programs.some(program => !program.fits)) process.exitCode = 1;
  });
}

function linesOf(programs: readonly Answer[], zone: string): string[] {
  const columns = [
    'TPU',
    'fits',
    'mesh',
    'HBM of a chip',
    'a step',
    'tokens/s',
    'of the peak',
    'spot $/M tokens',
    'on demand',
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
    `Times are estimates of the TPU compiler for full rows, and no TPU has run them; prices are those of ${zone}. \`gleaner estimate\` adds padding, starts, uploads and preemptions.`,
  ];
}

function money(usd: number | null): string {
  return usd === null ? 'unknown' : dollarText(usd);
}

/**
 * Compiles the program of a run for a type of TPU, by the TPU compiler on this machine. Throws `CliError` for a model that cannot be
 * used, and for a type that the compiler is not set up for.
 */
export async function compileProgram(
  spec: RunSpec,
  accelerator: string,
  connection: Connection | undefined,
): Promise<Compiled> {
  await workerPython(say, TPU_LOCK); // minutes at the first time, which are not the compiler's
  say(`Compiling ${spec.model} for ${accelerator}`);
  const compiled = await withClock('The preflight has worked', () =>
    askWorker('gleaner_worker.preflight', spec, ['--accelerator', accelerator], connection, TPU_LOCK),
  );
  return compiled as Compiled;
}
