/** Copies a model of a hub to the bucket, once and at one commit. A run of the copy needs no internet. */
import {createHash, hash} from 'node:crypto';
import {mkdir, open, readFile, rm, writeFile} from 'node:fs/promises';
import {dirname, join} from 'node:path';
import {z} from 'zod';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {createOnce} from '../../client/google/create-once.ts';
import {crc32cOf, sha256Of} from '../../client/google/hash-file.ts';
import {resumableUploads} from '../../client/google/resumable.ts';
import type {Answers} from '../../client/json/index.ts';
import {cacheFolder} from '../../client/python/python.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {bytesText, counted} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {jsonText, parsedText} from '../../shared/contracts/printable.ts';
import {filesProblem, isReadByWorkers} from '../../shared/contracts/spec/model-files.ts';
import {Sessions} from '../streams/sessions.ts';
import {type Hub, type HubFile, hubSettings, openHub} from '../streams/sources/hub.ts';
import {uploadFile} from '../streams/upload-file.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';

/** Bytes of one request to the hub, which are in memory. */
const PIECE_BYTES = 16 << 20;
/** Last object of a copy: the model, its commit, and the digests and the size of each file. */
const COMPLETE = 'gleaner-model.json';
/** The licence and the card of the model. */
const OF_THE_LICENCE = /^((LICEN[CS]E|NOTICE|USE_POLICY)[\w.-]{0,60}|README\.md)$/i;
/** Files of an SAE. */
const OF_AN_SAE = /\.(json|safetensors)$/;

const completed = z.object({
  files: z.record(z.string(), z.object({sha256: z.string(), size_bytes: z.number(), crc32c: z.string()})),
});
type StoredFiles = z.infer<typeof completed>['files'];
/** Limit of the last object of a copy. */
const MAX_COMPLETE_BYTES = 4 << 20;

const knownDigests = z.record(z.string(), z.strictObject({sha256: z.string(), crc32c: z.string()}));
type Digests = z.infer<typeof knownDigests>[string];
/** File of the digests of an interrupted copy. */
const DIGESTS = 'digests.json';

type Mirrored = Answers['models mirror'];

/** `path`: patterns of the names of files of SAEs, which are copied in place of a model. */
type Chosen = {revision?: string | undefined; path?: string[] | undefined};
export type MirrorOptions = Chosen & {
  say: (line: string) => void;
  stop: AbortSignal;
  hub?: Hub;
};

/** `gleaner models mirror`. */
export async function mirror(model: string, options: CloudOptions & Chosen): Promise<void> {
  const stop = abortedAtStop();
  const {revision, path} = options;
  const report = await withCloud(options, cloud => mirrorModel(cloud, model, {revision, path, say, stop}));
  print<'models mirror'>(options.json, report, [
    mirroredText(report),
    path ? `  "weights": "${report.address}"` : `  gleaner run start my-run --model ${report.address} …`,
  ]);
}

export function mirroredText({model, commit, address, files, bytes, copied_bytes}: Mirrored): string {
  const copied = copied_bytes > 0 ? `${bytesText(copied_bytes)} copied` : 'already there';
  return `${model} at commit ${commit} is ${address}: ${counted(files, 'file')}, ${bytesText(bytes)}, ${copied}`;
}

function mirrorPrefix({model, commit}: {model: string; commit: string}): string {
  return `models/${model}@${commit}/`;
}

/** True for a name of a hub, `ORG/NAME` or `NAME`, and false for a folder or a bucket. */
export function isHubModel(model: string): boolean {
  return /^([A-Za-z0-9_][\w.-]{0,95}\/)?[A-Za-z0-9_][\w.-]{0,95}$/.test(model) && !/--|\.\./.test(model);
}

/** Throws `CliError`, which names what is wrong and what to do. The same command goes on after an interruption with the next file. */
export async function mirrorModel(
  cloud: Pick<Cloud, 'connection' | 'objects'>,
  model: string,
  {hub = openHub(hubSettings(), 'model'), ...options}: MirrorOptions,
): Promise<Mirrored> {
  if (!isHubModel(model))
    throw new CliError(`${model} is not a model of a hub: name it as ORG/NAME, such as Qwen/Qwen2.5-0.5B`);
  const {path, say, stop} = options;
  const {commit, files} = await readCommit(hub, model, options);
  const prefix = mirrorPrefix({model, commit});
  const last = path ? `gleaner-${hash('sha256', path.toSorted().join('\n'))}.json` : COMPLETE;
  const bytes = files.reduce((sum, {size_bytes}) => sum + size_bytes, 0);
  const report = {
    model,
    commit,
    address: `gs://${cloud.connection.bucket}/${prefix.slice(0, -1)}`,
    files: files.length,
    bytes,
  };
  if (await isComplete(cloud, prefix, last, files)) return {...report, copied_bytes: 0};
  say(`${model} at commit ${commit}: ${counted(files.length, 'file')}, ${bytesText(bytes)}`);
  let copied_bytes = 0;
  const copying: Copying = {
    ...{cloud, hub, model, commit, stop},
    folder: join(cacheFolder(), 'mirror', `${model.replace('/', '--')}@${commit}`),
    moved: moved => {
      copied_bytes += moved;
    },
  };
  const stored = await copyAll(copying, files, say).catch(error => {
    throw stop.aborted
      ? new Interrupted('Interrupted: the same command continues there', {cause: error})
      : error;
  });
  const content = Buffer.from(`${jsonText({model, commit, files: stored})}\n`);
  await createOnce(cloud.objects, `${prefix}${last}`, content, 'application/json');
  return {...report, copied_bytes};
}

async function readCommit(hub: Hub, model: string, {revision = 'main', path, stop}: MirrorOptions) {
  const found = await hub.commit('models', model, revision, stop);
  if (found === undefined)
    throw new CliError(
      `There is no revision ${revision} of a model ${model} on ${hub.endpoint}: check the name and --revision`,
    );
  const {commit, files} = found;
  if (path) return {commit, files: [...new Set(path.flatMap(pattern => filesAt(files, pattern, model)))]};
  const names = files.map(({name}) => name);
  const problem = names.includes('config.json')
    ? filesProblem(names, model)
    : `${model} has no config.json: choose a repository that has it, or name the files of SAEs with --path`;
  if (problem !== undefined) throw new CliError(`Failed to copy ${model} at ${revision}: ${problem}`);
  return {commit, files: files.filter(({name}) => isReadByWorkers(name) || OF_THE_LICENCE.test(name))};
}

/** The files of SAEs that match a pattern, in which `*` stands for any part of a name, and `**` for folders too. */
function filesAt(files: readonly HubFile[], pattern: string, model: string): HubFile[] {
  const escaped = pattern.replace(/\*\*?|[^\w/]/g, part => ({'*': '[^/]*', '**': '.*'})[part] ?? `\\${part}`);
  const found = files.filter(({name}) => OF_AN_SAE.test(name) && new RegExp(`^${escaped}$`).test(name));
  if (found.length > 0) return found;
  throw new CliError(
    `Failed to copy ${model}: no .json and no .safetensors matches --path ${pattern}; * does not cross a /, and ** does`,
  );
}

/** True if an earlier command has ended, and its files are there with the bytes that it has copied. */
async function isComplete(
  {objects}: Pick<Cloud, 'objects'>,
  prefix: string,
  last: string,
  files: HubFile[],
): Promise<boolean> {
  const bytes = await objects.read(`${prefix}${last}`, {max_bytes: MAX_COMPLETE_BYTES});
  const known = completed.safeParse(parsedText(Buffer.from(bytes ?? '').toString('utf8'))).data?.files;
  if (!known) return false;
  const stored = new Map((await objects.list(prefix)).map(object => [object.name, object]));
  return files.every(({name, size_bytes}) => {
    const object = stored.get(`${prefix}${name}`);
    return object?.size_bytes === size_bytes && known[name]?.crc32c === object.crc32c;
  });
}

/** A copy of one commit. `folder`: that of the file under way, and of the digests of the files before. */
type Copying = {
  cloud: Pick<Cloud, 'connection' | 'objects'>;
  hub: Hub;
  model: string;
  commit: string;
  stop: AbortSignal;
  folder: string;
  moved: (bytes: number) => void;
};

/** Copies each file to a folder of this machine, where it is checked, and then to the bucket. */
async function copyAll(
  copying: Copying,
  files: HubFile[],
  say: (line: string) => void,
): Promise<StoredFiles> {
  const {folder} = copying;
  await mkdir(folder, {recursive: true});
  const text = await readFile(join(folder, DIGESTS), 'utf8').catch(() => '{}');
  const digests = knownDigests.safeParse(parsedText(text)).data ?? {};
  for (const [index, file] of files.entries()) {
    say(`${file.name}: ${bytesText(file.size_bytes)}, file ${index + 1} of ${files.length}`);
    await copyFile(copying, file, digests);
    await writeFile(join(folder, DIGESTS), JSON.stringify(digests));
  }
  await rm(folder, {recursive: true});
  return Object.fromEntries(
    files.map(({name, size_bytes}) => {
      const {sha256, crc32c} = digests[name] ?? {sha256: '', crc32c: ''};
      return [name, {sha256, crc32c, size_bytes}];
    }),
  );
}

async function copyFile(copying: Copying, file: HubFile, digests: Record<string, Digests>): Promise<void> {
  const {cloud, folder, stop} = copying;
  const {objects} = cloud;
  const name = `${mirrorPrefix(copying)}${file.name}`;
  const there = await objects.head(name);
  if (there === undefined || digests[file.name]?.crc32c !== there.crc32c) {
    const path = join(folder, file.name);
    await mkdir(dirname(path), {recursive: true});
    await download(copying, file, path);
    const sha256 = await sha256Of(path, stop);
    await check(file, path, sha256);
    const crc32c = await crc32cOf(path, stop);
    digests[file.name] = {sha256, crc32c};
    if (there === undefined) await upload(copying, file, {name, path, crc32c});
    await rm(path);
  }
  const stored = await objects.head(name);
  if (stored?.crc32c !== digests[file.name]?.crc32c)
    throw new CliError(
      `gs://${objects.bucket}/${name} has other content than the file of the hub: delete the object, and try again`,
    );
}

/** Goes on after the bytes that an earlier attempt has written. */
async function download(
  {hub, model, commit, stop}: Copying,
  {name, size_bytes}: HubFile,
  path: string,
): Promise<void> {
  const file = await open(path, 'a+');
  try {
    for (let at = (await file.stat()).size; at < size_bytes; ) {
      const end = Math.min(size_bytes, at + PIECE_BYTES);
      const bytes = await hub.range(`/${model}/resolve/${commit}/${name}`, name, at, end, stop);
      await file.write(Buffer.from(bytes));
      at = end;
    }
  } finally {
    await file.close();
  }
}

/** Removes a file that is not that of the hub. */
async function check(
  {name, sha256, blob_id, size_bytes}: HubFile,
  path: string,
  found: string,
): Promise<void> {
  const blob = blob_id && (await gitBlobOf(path, size_bytes));
  if ((sha256 ?? found) === found && blob === blob_id) return;
  await rm(path);
  throw new CliError(`Failed to copy ${name}: it arrived damaged; try again`);
}

async function upload(
  {cloud, folder, stop, moved}: Copying,
  {name: file, size_bytes}: HubFile,
  {name, path, crc32c}: {name: string; path: string; crc32c: string},
): Promise<void> {
  const {project, bucket, storage_endpoint: endpoint, token} = cloud.connection;
  const resumable = resumableUploads({project, bucket, endpoint, token});
  const sessions = new Sessions(folder, bucket);
  const content_type = file.endsWith('.json') ? 'application/json' : 'application/octet-stream';
  const to = {objects: cloud.objects, resumable, sessions, stop, moved};
  await uploadFile(to, {file, path}, {name, size_bytes, crc32c, content_type});
}

/** The digest that git gives a file. The hub states it for each file that is not large. */
async function gitBlobOf(path: string, size_bytes: number): Promise<string> {
  const hash = createHash('sha1').update(`blob ${size_bytes}\0`);
  return hash.update(await readFile(path)).digest('hex');
}
