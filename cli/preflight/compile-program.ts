import type {RunSpec} from '../../shared/contracts/spec.ts';
import type {Compiled} from '../../shared/domain/billing/estimate.ts';
import type {Connection} from '../cloud/connection.ts';
import {askWorker} from '../python/ask-worker.ts';
import {TPU_LOCK, workerPython} from '../python/python.ts';
import {say} from '../terminal/output.ts';
import {withClock} from '../terminal/progress-clock.ts';

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
