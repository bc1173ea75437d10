import {existsSync, statSync} from 'node:fs';
import {resolve} from 'node:path';
import {MAX_MANIFEST_BYTES, manifest} from '../../../shared/contracts/manifest.ts';
import {parseJson} from '../../../shared/contracts/schemas.ts';
import {parseRunSpec, type RunSpecInput} from '../../../shared/contracts/spec.ts';
import {readRunSpec, readText} from '../../../shared/control-plane/runs/run-manifest.ts';
import {datasetPrefix, isRunId, manifestObject} from '../../../shared/domain/names.ts';
import type {Cloud} from '../../cloud/cloud.ts';
import {readStreamFolder} from '../../streams/folder.ts';
import {CliError} from '../../terminal/errors.ts';
import {counted} from '../../terminal/format.ts';
import {readSpecFile} from '../spec.ts';

/** Streams of an estimate: their name, the arguments that lead the worker's module to them, and their spec. */
export type Target = {what: string; args: string[]; input: RunSpecInput};

/** Finds the streams that `target` names: a file, a folder of streams, an address in a bucket, or a run. */
export async function findTarget(
  target: string,
  spec_file: string | undefined,
  cloud: Cloud | undefined,
): Promise<Target> {
  const input = spec_file === undefined ? undefined : await readSpecFile(spec_file);
  if (statSync(target, {throwIfNoEntry: false})?.isDirectory()) {
    const {streams, spec} = await readStreamFolder(target);
    const args = streams.flatMap(({path}) => ['--file', resolve(path)]);
    const own = spec && parseRunSpec(spec.toString('utf8'), `${target}/run.json`);
    return {what: `${counted(streams.length, 'stream')} of ${target}`, args, input: input ?? own ?? {}};
  }
  if (existsSync(target)) return {what: target, args: ['--file', resolve(target)], input: input ?? {}};
  const [, bucket, path] = /^gs:\/\/([^/]+)\/(.+)$/.exec(target) ?? [];
  if (bucket && path) return {what: target, args: ['--bucket', bucket, '--prefix', path], input: input ?? {}};
  if (!isRunId(target) || !cloud)
    throw new CliError(
      `There is no file and no run ${target}: name a JSONL file, a folder of streams, an address in a bucket, or a run`,
    );
  const args = ['--bucket', cloud.connection.bucket, '--prefix', datasetPrefix(target)];
  return {what: `run ${target}`, args, input: input ?? (await specOfRun(cloud, target))};
}

/** Frozen spec of a run; before the freeze the spec in its run.json. */
async function specOfRun({objects}: Cloud, run: string): Promise<RunSpecInput> {
  const frozen = await readText(objects, manifestObject(run), MAX_MANIFEST_BYTES);
  if (frozen !== undefined) return parseJson(manifest, frozen, manifestObject(run)).spec;
  return (await readRunSpec(objects, run)) ?? {};
}
