/** Records of deployments beside the state of Terraform: settings, artefacts, who and when, and the lock file of the provider. */
import {execFileSync} from 'node:child_process';
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {z} from 'zod';
import type {GoogleApi} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {iso} from '../../shared/domain/time.ts';
import {openObjects} from '../../shared/google/objects.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {builtArtifacts, DIST} from '../build/artifacts.ts';
import type {Settings} from './settings.ts';

const MOST_BYTES = 1 << 20;

/** `file`: name in `dist/`. */
const artifact = z.looseObject({
  file: z.string().regex(/^[\w-][\w.-]*$/),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});

const record = z.looseObject({
  deployed_at: z.string(),
  account: z.string(),
  /** Commit of the clone, with `-dirty` behind it for changed files; null without git. */
  git_commit: z.string().nullable(),
  settings: z.looseObject({project: z.string(), name: z.string().optional()}),
  /** Variable `artifacts` of Terraform. */
  artifacts: z.looseObject({functions: artifact, bundle: artifact, environment: artifact.nullish()}),
});

export type Record = z.infer<typeof record>;

/** Bucket of the state of Terraform, which `--state-bucket` may name. */
export function stateBucketOf(project: string, {state_bucket}: {state_bucket?: string | undefined}): string {
  return state_bucket ?? `${project}-gleaner-terraform`;
}

export function openStateBucket(api: GoogleApi, project: string, bucket: string): Objects {
  return openObjects({project, bucket, endpoint: api.endpoint, token: api.token});
}

const folderOf = (name: string) => `${name}/deployments/`;
const latestOf = (name: string) => `${folderOf(name)}latest.json`;
const lockOf = (name: string) => `${name}/terraform.lock.hcl`;

export async function writeRecord(
  state: Objects,
  name: string,
  given: {settings: Settings; account: string; now_ms: number; lock_file: string},
): Promise<void> {
  const {settings, account, now_ms, lock_file} = given;
  const deployed_at = iso(now_ms);
  const artifacts = await builtArtifacts();
  const written: Record = {deployed_at, account, git_commit: gitCommit(), settings, artifacts};
  const bytes = Buffer.from(`${JSON.stringify(written, null, 2)}\n`);
  const json = {content_type: 'application/json'};
  await state.create(`${folderOf(name)}${deployed_at}.json`, bytes, json);
  await overwrite(state, latestOf(name), bytes);
  if (existsSync(lock_file)) await overwrite(state, lockOf(name), readFileSync(lock_file));
}

async function overwrite(state: Objects, name: string, bytes: Uint8Array): Promise<void> {
  for (;;) {
    const found = await state.head(name);
    const done = found ? await state.replace(name, found.generation, bytes) : await state.create(name, bytes);
    if (done === 'created' || done === 'replaced') return;
  }
}

/** The latest record; undefined before the first one. */
export async function latestRecord(state: Objects, name: string): Promise<Record | undefined> {
  return readRecord(state, latestOf(name));
}

async function readRecord(state: Objects, object: string): Promise<Record | undefined> {
  const bytes = await state.read(object, {max_bytes: MOST_BYTES});
  if (!bytes) return undefined;
  return parseJson(record, Buffer.from(bytes).toString(), `gs://${state.bucket}/${object}`);
}

/** Every record of a deployment, the oldest first. */
export async function allRecords(state: Objects, name: string): Promise<Record[]> {
  const names = (await state.list(folderOf(name))).map(each => each.name);
  const dated = names.filter(each => each !== latestOf(name));
  const records = await Promise.all(dated.map(each => readRecord(state, each)));
  return records.filter(each => each !== undefined);
}

/** The latest record whose zip of functions has a digest that starts so. Throws `CliError` for none, and for several digests. */
export async function recordOf(state: Objects, name: string, start: string): Promise<Record> {
  const records = await allRecords(state, name);
  const found = records.filter(each => each.artifacts.functions.sha256.startsWith(start));
  const digests = [...new Set(found.map(({artifacts}) => artifacts.functions.sha256))];
  const last = found.at(-1);
  if (last && digests.length === 1) return last;
  const known = records.map(each => `${each.deployed_at} ${each.artifacts.functions.sha256}`);
  throw new CliError(
    digests.length > 1
      ? `${digests.length} deployments have functions ${start}…: give more characters`
      : `No deployment of ${name} has functions ${start}…; it has ${known.join(', ') || 'none'}`,
  );
}

/**
 * Copies the lock file of the state where this clone has none, so that Terraform checks its provider by the hashes of the first
 * deployment. A lock of another version of the provider stays out.
 */
export async function restoreLock(
  state: Objects,
  name: string,
  {lock_file, versions_file}: {lock_file: string; versions_file: string},
): Promise<boolean> {
  if (existsSync(lock_file)) return false;
  const lockBytes = await state.read(lockOf(name), {max_bytes: MOST_BYTES});
  const text = Buffer.from(lockBytes ?? []).toString();
  const versionIn = (source: string) => /^\s*version\s*=\s*"([^"]+)"/m.exec(source)?.[1];
  if (versionIn(text) !== versionIn(readFileSync(versions_file, 'utf8'))) return false;
  writeFileSync(lock_file, text);
  return true;
}

function gitCommit(): string | null {
  try {
    const described = ['describe', '--always', '--abbrev=40', '--dirty', '--exclude=*'];
    return execFileSync('git', described, {
      cwd: DIST.replace(/dist\/$/, ''),
      encoding: 'utf8',
      stdio: 'pipe',
    }).trim();
  } catch {
    return null;
  }
}
