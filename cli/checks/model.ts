/** Checks that the model of a run is there and supported: in a bucket, on a hub, or in a folder. */
import {opendir, readdir, readFile} from 'node:fs/promises';
import {join, relative} from 'node:path';
import type {Cloud} from '../../client/cloud/cloud.ts';
import {CliError} from '../../client/text/errors.ts';
import {configProblem, MAX_CONFIG_BYTES} from '../../shared/contracts/spec/model-config.ts';
import {filesProblem, TEMPLATES} from '../../shared/contracts/spec/model-files.ts';
import {entriesOf, entryProblem, type Files} from '../../shared/contracts/spec/reduction-files.ts';
import type {RunSpec} from '../../shared/contracts/spec/spec.ts';
import {bucketModel, filesInFolder, MAX_LISTED} from '../../shared/control-plane/runs/check-model.ts';
import {readText} from '../../shared/control-plane/runs/run-manifest.ts';
import {isNotFound} from '../../shared/google/errors.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {isHubModel} from '../models/mirror.ts';
import {type Hub, hubSettings, openHub} from '../streams/sources/hub.ts';
import type {Finding} from './findings.ts';

type Asked = Pick<RunSpec, 'model' | 'revision' | 'layers'>;
type Store = Pick<Cloud, 'connection' | 'objects'>;
/** Text of config.json and the names of the files beside it where they are known, or why there is none. `silent`: the hub does not answer. */
type Config = {text: string; names: readonly string[] | undefined} | {silent: string} | Finding;

export function checkModel(config: Config, spec: Asked): Finding[] {
  if ('silent' in config) return [];
  if (!('text' in config)) return [config];
  const problem = configProblem(config.text, spec) ?? filesProblem(config.names, spec.model);
  return problem === undefined ? [] : [{problem}];
}

/** Checks the files of each reduction. `config`: that of the model. */
export async function checkReductions(cloud: Store, config: Config, spec: RunSpec, hub = hubOfThisMachine) {
  const model = 'text' in config ? config.text : '';
  const findings = entriesOf(spec).map(async (entry): Promise<Finding[]> => {
    const files = await filesOf(cloud, entry.weights, entry.revision ?? 'main', hub);
    if (!files) return [{unchecked: `the files of ${entry.weights}`}];
    const problem = await entryProblem(entry, spec, model, files);
    return problem === undefined ? [] : [{problem}];
  });
  const failed = ({message}: Error) => [{problem: message}];
  return (await Promise.all(findings.map(each => each.catch(failed)))).flat();
}

/** Undefined for a folder of the TPU VMs, and without names for a repository or a folder that is not there. */
async function filesOf(cloud: Store, weights: string, revision: string, hubOf: () => Hub) {
  const at = bucketModel(weights);
  if (at) return filesInFolder(objectsOf(cloud, at.bucket), at.folder);
  if (!isHubModel(weights)) return cloud.connection.is_google ? undefined : filesOfMachine(weights);
  const hub = hubOf();
  const {commit, files} = (await hub.commit('models', weights, revision)) ?? {files: []};
  const at_commit = (name: string) => `/${weights}/resolve/${commit}/${encodeURI(name)}`;
  const read = (name: string) => hub.text(at_commit(name), `${weights}/${name}`, MAX_CONFIG_BYTES);
  return {names: files.map(({name}) => name), read};
}

/** Undefined for a folder that cannot be read, or has too many files. */
async function filesOfMachine(folder: string): Promise<Files | undefined> {
  const names: string[] = [];
  try {
    for await (const entry of await opendir(folder, {recursive: true})) {
      if (!entry.isDirectory()) names.push(relative(folder, join(entry.parentPath, entry.name)));
      if (names.length === MAX_LISTED) return undefined;
    }
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR'].includes(String((error as NodeJS.ErrnoException).code))) return undefined;
  }
  return {names, read: name => readFile(join(folder, name))};
}

/** Reads config.json of a model. `hub`: asks the hub of this machine. */
export async function readModelConfig(cloud: Store, spec: Asked, hub = hubOfThisMachine): Promise<Config> {
  const {model} = spec;
  const at = bucketModel(model);
  if (at) return readFromBucket(objectsOf(cloud, at.bucket), at.folder, model);
  return isHubModel(model) ? readFromHub(hub, spec) : readFromFolder(cloud.connection.is_google, model);
}

function objectsOf({connection, objects}: Store, bucket: string): Store['objects'] {
  const {project, storage_endpoint: endpoint, token} = connection;
  return bucket === objects.bucket ? objects : openObjects({project, bucket, endpoint, token});
}

async function readFromBucket(objects: Cloud['objects'], folder: string, model: string): Promise<Config> {
  try {
    const text = await readText(objects, `${folder}/config.json`, MAX_CONFIG_BYTES);
    if (text !== undefined) return {text, names: (await filesInFolder(objects, folder))?.names};
    return {problem: `there is no ${model}/config.json: copy the model there, or give another --model`};
  } catch (error) {
    const {message, cause} = error as Error;
    if (isNotFound(cause)) return {problem: `there is no bucket of ${model}: correct --model`};
    return {unchecked: `the model ${model}. ${message}`};
  }
}

/** A short patience: the worker waits longer for a hub. */
const PATIENCE = {attempts: 2, give_up_ms: 10_000, silence_ms: 8_000};

function hubOfThisMachine(): Hub {
  const settings = hubSettings();
  return openHub({...settings, retries: {...settings.retries, ...PATIENCE}}, 'model');
}

async function readFromHub(hubOf: () => Hub, {model, revision}: Asked): Promise<Config> {
  const commit = revision ?? 'main';
  const path = `/${model}/resolve/${encodeURIComponent(commit)}/config.json`;
  try {
    const hub = hubOf();
    const text = await hub.text(path, `the model ${model}`, MAX_CONFIG_BYTES);
    const found = await hub.commit('models', model, commit);
    return {text, names: found?.files.map(({name}) => name)};
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    const {message, cause} = error;
    const code = (cause as {code?: unknown} | undefined)?.code;
    if (code === 401 || code === 403 || code === 404)
      return {
        problem: `${message.replace('--revision', '--model and --revision')}; a model of the TPUs' token alone needs --no-check`,
      };
    return {silent: `the model ${model} is unknown here. ${message}`};
  }
}

async function readFromFolder(isGoogle: boolean, model: string): Promise<Config> {
  if (isGoogle) return {unchecked: `the model ${model}, which is a folder of the TPU VMs`};
  try {
    const text = await readFile(join(model, 'config.json'), 'utf8');
    const templates = await readdir(join(model, TEMPLATES)).catch(() => []);
    return {text, names: [...(await readdir(model)), ...templates.map(name => `${TEMPLATES}/${name}`)]};
  } catch (error) {
    return {
      problem: `there is no ${join(model, 'config.json')}: ${(error as NodeJS.ErrnoException).code}; correct --model`,
    };
  }
}
