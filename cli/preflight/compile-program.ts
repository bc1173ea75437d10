import {mkdir} from 'node:fs/promises';
import {join} from 'node:path';
import type {RunSpec} from '../../shared/contracts/spec.ts';
import type {Compiled} from '../../shared/domain/billing/estimate.ts';
import type {Connection} from '../connection.ts';
import {CliError} from '../errors.ts';
import {say} from '../output.ts';
import {CACHE, runWorkerModule, TPU_LOCK, workerPython} from '../python.ts';
import {withClock} from '../with-clock.ts';

/**
 * Compiles the program of a run for a type of TPU, by the TPU compiler on this machine. Throws `CliError` for a model that cannot be
 * used, and for a type that the compiler is not set up for.
 */
export async function compileProgram(
  spec: RunSpec,
  accelerator: string,
  connection: Connection | undefined,
): Promise<Compiled> {
  const home = join(CACHE, 'models');
  await mkdir(home, {recursive: true});
  await workerPython(say, TPU_LOCK);
  const endpoint = connection?.storage_endpoint;
  const bucket = connection ? ['--bucket', connection.bucket] : [];
  const args = ['--spec', JSON.stringify(spec), '--home', home, '--accelerator', accelerator, ...bucket];
  say(`Compiling ${spec.model} for ${accelerator}`);
  const {code, stdout, stderr} = await withClock(`The compiler has worked`, () =>
    runWorkerModule(
      ['gleaner_worker.preflight', ...args],
      endpoint ? {STORAGE_EMULATOR_HOST: endpoint} : {},
      () => {},
      TPU_LOCK,
    ),
  );
  const last = stdout.at(-1);
  if (code !== 0 || !last)
    throw new CliError(
      stderr.at(-1) ??
        `Failed to compile for ${accelerator}: the compiler ended with exit ${code} and printed nothing`,
    );
  return JSON.parse(last) as Compiled;
}
