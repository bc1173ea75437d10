import {existsSync, statSync} from 'node:fs';
import {resolve} from 'node:path';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {CliError} from '../../../client/text/errors.ts';
import {counted} from '../../../client/text/format.ts';
import {parseRunSpec, type RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {readRunSpec} from '../../../shared/control-plane/runs/run-manifest.ts';
import {datasetPrefix, isRunId} from '../../../shared/domain/names.ts';
import {readStreamFolder} from '../../streams/folder.ts';
import {frozenInput} from '../spec/from-run.ts';

/** Streams of an estimate: their name, the arguments that lead the worker's module to them, and the spec that is there. */
export type Target = {what: string; args: string[]; input: RunSpecInput};

/** Finds the streams that `target` names: a file, a folder of streams, an address in a bucket, or a run. */
export async function findTarget(target: string, cloud: Cloud | undefined): Promise<Target> {
  if (statSync(target, {throwIfNoEntry: false})?.isDirectory()) {
    const {streams, spec} = await readStreamFolder(target);
    const args = streams.flatMap(({path}) => ['--file', resolve(path)]);
    const own = spec && parseRunSpec(spec.toString('utf8'), `${target}/run.json`);
    return {what: `${counted(streams.length, 'stream')} of ${target}`, args, input: own ?? {}};
  }
  if (existsSync(target)) return {what: target, args: ['--file', resolve(target)], input: {}};
  const [, bucket, path] = /^gs:\/\/([^/]+)\/(.+)$/.exec(target) ?? [];
  if (bucket && path) return {what: target, args: ['--bucket', bucket, '--prefix', path], input: {}};
  if (!isRunId(target) || !cloud)
    throw new CliError(
      `There is no file and no run ${target}: name a JSONL file, a folder of streams, an address in a bucket, or a run`,
    );
  const args = ['--bucket', cloud.connection.bucket, '--prefix', datasetPrefix(target)];
  const input = (await frozenInput(cloud, target)) ?? (await readRunSpec(cloud.objects, target)) ?? {};
  return {what: `run ${target}`, args, input};
}
