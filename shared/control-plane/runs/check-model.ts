import {configProblem, MAX_CONFIG_BYTES} from '../../contracts/spec/model-config.ts';
import {filesProblem} from '../../contracts/spec/model-files.ts';
import type {RunSpec} from '../../contracts/spec/spec.ts';
import type {Objects} from '../../ports/ports.ts';

const MAX_LISTED = 5000;

/** The folder of a model in a bucket; undefined for any other model. */
export function bucketModel(model: string): {bucket: string; folder: string} | undefined {
  const [, bucket, folder] = /^gs:\/\/([^/]+)\/(.+?)\/*$/.exec(model) ?? [];
  return bucket && folder ? {bucket, folder} : undefined;
}

/** Why no run can use this model of the bucket. Also undefined for a model elsewhere, which the first stream will check. */
export async function bucketModelProblem(
  objects: Objects,
  spec: Pick<RunSpec, 'model' | 'layers'>,
): Promise<string | undefined> {
  const at = bucketModel(spec.model);
  if (at?.bucket !== objects.bucket) return undefined;
  const bytes = await objects.read(`${at.folder}/config.json`, {max_bytes: MAX_CONFIG_BYTES});
  if (bytes)
    return (
      configProblem(Buffer.from(bytes).toString('utf8'), spec) ??
      filesProblem(await namesInFolder(objects, at.folder), spec.model)
    );
  return `there is no ${spec.model}/config.json: copy the model there, or set \`model\` to the address of a model`;
}

/** Names of the files in a folder; undefined if it has too many objects. */
export async function namesInFolder(objects: Objects, folder: string): Promise<string[] | undefined> {
  const listed = await objects.list(`${folder}/`, {limit: MAX_LISTED});
  if (listed.length === MAX_LISTED) return undefined;
  return listed.map(({name}) => name.slice(folder.length + 1));
}
