import {configProblem, MAX_CONFIG_BYTES} from '../../contracts/spec/model-config.ts';
import {filesProblem} from '../../contracts/spec/model-files.ts';
import {entriesOf, entryProblem, type Files} from '../../contracts/spec/reduction-files.ts';
import type {RunSpec} from '../../contracts/spec/spec.ts';
import type {Objects} from '../../ports/ports.ts';

/** Most files of a folder that is checked. */
export const MAX_LISTED = 5000;
/** The folder of models that the account of the control plane reads. */
const READABLE = 'models/';

/** The folder of a model in a bucket; undefined for any other model. */
export function bucketModel(model: string): {bucket: string; folder: string} | undefined {
  const [, bucket, folder] = /^gs:\/\/([^/]+)\/(.+?)\/*$/.exec(model) ?? [];
  return bucket && folder ? {bucket, folder} : undefined;
}

/** Why no run can use this model below models/ of the bucket, or weights of a reduction there. What is elsewhere is checked by the first stream. */
export async function bucketModelProblem(objects: Objects, spec: RunSpec): Promise<string | undefined> {
  const readable = (address: string) => {
    const {bucket, folder = ''} = bucketModel(address) ?? {};
    return bucket === objects.bucket && `${folder}/`.startsWith(READABLE) ? folder : undefined;
  };
  const model = readable(spec.model);
  const bytes = model ? await objects.read(`${model}/config.json`, {max_bytes: MAX_CONFIG_BYTES}) : '';
  if (bytes === undefined)
    return `there is no ${spec.model}/config.json: copy the model there, or set \`model\` to the address of a model`;
  const config = Buffer.from(bytes).toString('utf8');
  const files = model ? await filesInFolder(objects, model) : undefined;
  let problem = model ? (configProblem(config, spec) ?? filesProblem(files?.names, spec.model)) : undefined;
  for (const entry of entriesOf(spec)) {
    const folder = readable(entry.weights);
    const own = folder ? await filesInFolder(objects, folder) : undefined;
    problem ??= own && (await entryProblem(entry, spec, config, own));
  }
  return problem;
}

/** Undefined for a folder with too many objects. */
export async function filesInFolder(objects: Objects, folder: string): Promise<Files | undefined> {
  const listed = await objects.list(`${folder}/`, {limit: MAX_LISTED});
  if (listed.length === MAX_LISTED) return undefined;
  const names = listed.map(({name}) => name.slice(folder.length + 1));
  return {names, read: name => objects.read(`${folder}/${name}`, {max_bytes: MAX_CONFIG_BYTES})};
}
