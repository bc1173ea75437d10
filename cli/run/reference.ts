/** `gleaner run verify --reference`: computes samples of a run with transformers, and keeps the drift in the manifest of the run. */
import {fileURLToPath} from 'node:url';
import {type Connection, storageVariables} from '../../client/connection/connection.ts';
import {comparedText, driftColumns} from '../../client/explanations/compared-text.ts';
import {
  type Comparison,
  comparedManifest,
  comparison,
  type StoredComparison,
} from '../../client/json/compared-manifest.ts';
import {runWorkerModule} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {type StyledLine, table} from '../../client/text/output.ts';
import {Rejected} from '../../shared/contracts/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {MAX_MANIFEST_BYTES} from '../../shared/contracts/spec/manifest.ts';
import {readText} from '../../shared/control-plane/runs/run-manifest.ts';
import {manifestObject} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports/ports.ts';

/** Packages of the worker, and transformers with torch. */
const LOCK = fileURLToPath(new URL('reference-requirements.lock', import.meta.url));
const ATTEMPTS = 5;

/** Computes `samples` of the run again, from all over its streams. */
export async function compareWithReference(
  connection: Connection,
  run: string,
  samples: number,
  say: (line: string) => void,
): Promise<Comparison> {
  const args = [
    'gleaner_worker.reference',
    '--bucket',
    connection.bucket,
    '--run',
    run,
    '--samples',
    String(samples),
  ];
  const {code, stdout, stderr} = await runWorkerModule(args, storageVariables(connection), say, LOCK);
  const last = stdout.at(-1);
  if (code !== 0 || last === undefined)
    throw new CliError(
      stderr.at(-1) ?? `Failed to compare ${run} with transformers: Python ended with exit ${code}`,
    );
  return parseJson(comparison, last, 'The comparison');
}

/** Adds the comparison to the manifest of the run, in place of an earlier one. */
export async function storeComparison(
  objects: Objects,
  run: string,
  reference: StoredComparison,
): Promise<void> {
  const name = manifestObject(run);
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await objects.head(name);
    const text = found && (await readText(objects, name, MAX_MANIFEST_BYTES));
    if (found === undefined || text === undefined)
      throw new CliError(
        `Failed to store the comparison of ${run}: there is no ${name}; start the run again`,
      );
    const bytes = Buffer.from(`${JSON.stringify({...JSON.parse(text), reference}, null, 2)}\n`);
    const as = {content_type: 'application/json'};
    if ((await objects.replace(name, found.generation, bytes, as)) === 'replaced') return;
  }
  throw new CliError(`Failed to store the comparison of ${run}: ${name} changes all the time; try again`);
}

/** The comparison in the manifest of the run; null without one. */
export async function readComparison(objects: Objects, run: string): Promise<StoredComparison | null> {
  const name = manifestObject(run);
  const text = await readText(objects, name, MAX_MANIFEST_BYTES);
  try {
    return parseJson(comparedManifest, text ?? '', name).reference;
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return null;
  }
}

export function comparisonLines(found: Comparison): StyledLine[] {
  return [
    ...table(Object.values(driftColumns), Object.entries(found.drift)),
    {text: `compared: ${comparedText(found)}`, style: ['bold', 'green']},
  ];
}
