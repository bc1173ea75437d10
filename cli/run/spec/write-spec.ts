/** Writes run.json. It replaces none, unless the run waits for a valid one. */

import type {Cloud} from '../../../client/cloud/cloud.ts';
import {CliError} from '../../../client/text/errors.ts';
import {say} from '../../../client/text/output.ts';
import {type Difference, differencesOf} from '../../../client/views/comparison.ts';
import {parseJson} from '../../../shared/contracts/messages/schemas.ts';
import {MAX_MANIFEST_BYTES, manifest} from '../../../shared/contracts/spec/manifest.ts';
import {completeReductions, MAX_SPEC_BYTES, type RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {readText} from '../../../shared/control-plane/runs/run-manifest.ts';
import {manifestObject, specObject} from '../../../shared/domain/names.ts';
import {runChanges} from '../../../shared/domain/records/spec-keys.ts';

/** Writes run.json. Throws `CliError` where the run has another spec already, and names each key that differs. */
export async function writeSpec(cloud: Cloud, run: string, spec: RunSpecInput): Promise<void> {
  const frozen = await readJson(cloud, manifestObject(run), MAX_MANIFEST_BYTES);
  if (frozen !== undefined) {
    refuseDifferences(`run ${run} has begun, and its spec is frozen`, unequalToFrozen(spec, frozen, run));
    return refuseOtherSettings(cloud, run, spec);
  }
  const name = specObject(run);
  const bytes = Buffer.from(`${JSON.stringify(spec, null, 2)}\n`);
  const content_type = 'application/json';
  if ((await cloud.objects.create(name, bytes, {content_type})) === 'created')
    return say(`${name} is written`);
  const stored = JSON.parse((await readJson(cloud, name, MAX_SPEC_BYTES)) ?? '{}') as object;
  const differences = differencesOf(spec, stored);
  if (differences.length === 0) return say(`${name} is there with the same spec`);
  if (!(await waitsForSpec(cloud, run))) refuseDifferences(`${name} is there already`, differences);
  const head = await cloud.objects.head(name);
  if (!head || (await cloud.objects.replace(name, head.generation, bytes, {content_type})) === 'changed')
    throw new CliError(`Failed to write ${name}: it changed at this moment; run the command again`);
  say(`${name} is replaced: the run waited for a valid one`);
}

/** True for a run whose run.json was refused. */
async function waitsForSpec({store}: Cloud, run: string): Promise<boolean> {
  const found = await runRecords.get(store, run);
  return found?.status === 'failed' && found.spec === null;
}

async function readJson({objects}: Cloud, name: string, max_bytes: number): Promise<string | undefined> {
  const text = (await readText(objects, name, max_bytes))?.replace(/^\ufeff/, '');
  if (text === undefined) return undefined;
  try {
    JSON.parse(text);
    return text;
  } catch (cause) {
    throw new CliError(
      `Failed to read gs://${objects.bucket}/${name}: it is not JSON; delete it, and run the command again`,
      {cause},
    );
  }
}

async function refuseOtherSettings({store}: Cloud, run: string, spec: RunSpecInput): Promise<void> {
  const found = await runRecords.get(store, run);
  const keys = Object.keys(runChanges).filter(key => key in spec);
  const other = found ? differencesOf(spec, found, keys) : [];
  if (other.length === 0) return;
  const texts = other.map(
    ({key, wanted, stored}) => `${key} is ${valueText(stored)}, not ${valueText(wanted)}`,
  );
  const options = other.map(({key, wanted}) => `--${key.replaceAll('_', '-')} ${wanted ?? 'none'}`);
  throw new CliError(
    `Failed to start run ${run}, which has begun: ${texts.join(', ')}; change it with \`gleaner run configure ${run} ${options.join(' ')}\``,
  );
}

/** Keys of the wanted spec whose frozen values differ. `gleaner run configure` changes settings. */
function unequalToFrozen(spec: RunSpecInput, text: string, run: string): Difference[] {
  const {spec: of_run, placement = {}} = parseJson(manifest, text, manifestObject(run));
  const stored = {...placement, ...of_run} as Record<string, unknown>;
  const given = {...spec, ...completeReductions(spec)};
  const wanted = spec.record ? {...given, record: {...(of_run.record ?? {}), ...spec.record}} : given;
  return differencesOf(
    wanted,
    stored,
    Object.keys(spec).filter(key => !(key in runChanges)),
  );
}

function refuseDifferences(why: string, differences: readonly Difference[]): void {
  if (differences.length === 0) return;
  const lines = differences.map(
    ({key, wanted, stored}) => `  ${key}: ${valueText(stored)} there, ${valueText(wanted)} here`,
  );
  throw new CliError(
    [`${why}, with other values. Start a run with another name, or give the same options:`, ...lines].join(
      '\n',
    ),
  );
}

function valueText(value: unknown): string {
  return value === undefined ? 'the default' : JSON.stringify(value);
}
