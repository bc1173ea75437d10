import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {createHash} from 'node:crypto';
import {createReadStream, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync} from 'node:fs';
import {cp} from 'node:fs/promises';
import {homedir} from 'node:os';
import {isAbsolute, join} from 'node:path';
import {pipeline} from 'node:stream/promises';
import {fileURLToPath, pathToFileURL} from 'node:url';
import {promisify} from 'node:util';
import type {Environment} from '../../../../cli/build/environment/environment.ts';
import {readElf} from '../../../../cli/build/environment/portable.ts';
import {PINNED} from '../../../../cli/build/environment/portable-python.ts';
import {filesIn} from '../../../../cli/python/bundle.ts';
import {environmentFolder, LOCK, uvCache, WORKER_FOLDER} from '../../../../client/python/python.ts';
import {Folder} from '../../../support/machine/folder.ts';
import {workerEnvironment} from '../../../support/machine/worker-environment.ts';

const run = promisify(execFile);
const BUILDER = fileURLToPath(new URL('../../../support/machine/worker-environment.ts', import.meta.url));
const IMPORTS = `
import jax, json, sqlite3, ssl, sys, google.cloud.storage
print(json.dumps([sys.prefix, sys.executable, str(jax.numpy.ones(3).sum()), ssl.create_default_context().cert_store_stats()["x509"]]))
`;

// Before a merge, the built functions on a local cloud boot their VMs from an archive: test/e2e/path.test.ts.
describe('The archive of the worker environment @long', () => {
  const folder = new Folder(after);
  let built: Environment;
  let place: string;
  before(async () => {
    built = await workerEnvironment();
    place = await unpacked(built, folder.at(`env-${built.key}`));
  });

  it('the archive of the worker environment starts JAX from another folder, without a variable of this machine', async () => {
    const {stdout} = await run(join(place, 'bin/python3'), ['-c', IMPORTS], {env: {JAX_PLATFORMS: 'cpu'}});
    const [prefix, executable, sum, certificates] = JSON.parse(stdout);
    assert.deepEqual([prefix, executable, sum], [place, join(place, 'bin/python3'), '3.0']);
    assert.ok(certificates > 0, 'ssl finds the certificates of the system');
  });

  it('the archive of the worker environment makes the environment of a job with its own uv and Python', async () => {
    const code = 'from gleaner_worker.source.environment import _find_uv; print(_find_uv())';
    const python = join(place, 'bin/python3');
    const env = {PYTHONPATH: WORKER_FOLDER, PYTHONDONTWRITEBYTECODE: '1', UV_CACHE_DIR: folder.at('uv')};
    const {stdout: uv} = await run(python, ['-c', code], {env});
    assert.equal(uv, `${place}/bin/uv\n`);
    await run(uv.trim(), ['venv', '--offline', '--python', python, folder.at('job')], {env});
    const where = 'import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path("include"))';
    const {stdout} = await run(folder.at('job/bin/python'), ['-c', where], {env: {}});
    assert.ok(stdout.startsWith(`${place} ${place}/include/python3.`), stdout);
  });

  it('the archive of the worker environment names its lock file as other environments do', async () => {
    const name = readFileSync(join(place, 'lock-sha256'), 'utf8').slice(0, 16);
    assert.equal(`env-${name}`, (await environmentFolder(LOCK)).split('/').at(-1));
  });

  it('the archive of the worker environment holds no link, no test and no path of the build', async () => {
    const {stdout: members} = await run('tar', ['-tvzf', built.archive], {maxBuffer: 1 << 26});
    assert.deepEqual(
      members.split('\n').filter(line => line !== '' && !line.startsWith('-')),
      [],
    );
    const library = (await filesIn(join(place, 'lib'))).filter(file => !file.includes('site-packages'));
    assert.ok(library.length > 500);
    assert.deepEqual(
      library.filter(file => /\/tests?\//.test(file)),
      [],
    );
    for (const file of library) {
      const path = join(place, 'lib', file);
      assert.ok(!isAbsolute(readElf(path)?.runpath?.text ?? ''), `${file} searches a folder of the build`);
      if (file.endsWith('.py')) assert.ok(!readFileSync(path, 'latin1').includes(homedir()), file);
    }
  });
});

describe('A build of the worker environment in a new cache @long', () => {
  const folder = new Folder(afterEach);
  let env: NodeJS.ProcessEnv;
  beforeEach(() => {
    mkdirSync(folder.at('gleaner'));
    symlinkSync(uvCache(), folder.at('gleaner/uv'));
    env = {...process.env, XDG_CACHE_HOME: folder.path};
  });

  const build = async () => {
    const {stdout, stderr} = await run(process.execPath, [BUILDER], {env});
    return {built: JSON.parse(stdout) as Environment, said: stderr};
  };

  it('a build of the worker environment in a new cache publishes the same bytes as a build beside it, and removes what a killed build left', async () => {
    folder.put('gleaner/environments/0.unfinished.99999999/tree/file', '');
    const [{built: one}, {built: two}] = await Promise.all([build(), build()]);
    assert.deepEqual(one, two);
    assert.deepEqual(folder.names('gleaner/environments'), [one.key]);
    assert.equal(await digestOf(one.archive), one.sha256);
    rmSync(folder.at('gleaner/environments'), {recursive: true});
    assert.deepEqual((await build()).built, one);
    assert.ok(existsSync(one.archive));
  });

  it('a build of the worker environment in a new cache takes the Python that uv downloads, and no trace of the download', async () => {
    const place = await unpacked(await workerEnvironment(), folder.at('place'));
    env.UV_PYTHON_DOWNLOADS_JSON_URL = await aDownload(folder, place);
    const {built, said} = await build();
    assert.match(said, new RegExp(`Building the worker environment ${built.key} with .*/${PINNED}$`, 'm'));
    assert.doesNotMatch(said, /Failed/);
    const again = await unpacked(built, folder.at('again'));
    const {stdout: files} = await run('grep', ['-rlIF', folder.path, again]).catch(error => error);
    assert.equal(files, '');
    assert.ok(!(await filesIn(again)).some(file => file.endsWith('EXTERNALLY-MANAGED')));
    assert.deepEqual((await build()).built, built);
  });
});

/** Offers the Python of an environment to uv, as the archive that uv downloads. Returns the address of uv's list. */
async function aDownload(folder: Folder, place: string): Promise<string> {
  const root = folder.at('download/python');
  await cp(join(place, 'bin/python3'), join(root, 'bin/python3.12'));
  const filter = (path: string) => !path.includes('site-packages');
  for (const part of ['lib', 'include'])
    await cp(join(place, part), join(root, part), {recursive: true, filter});
  const archive = folder.at('python.tar.gz');
  await run('tar', ['-czf', archive, '-C', folder.at('download'), 'python']);
  const url = pathToFileURL(archive).href;
  const [major, minor, patch] = /\d+\.\d+\.\d+/.exec(PINNED)?.[0].split('.').map(Number) ?? [];
  const system = {arch: {family: 'x86_64', variant: null}, os: 'linux', libc: 'gnu'};
  const version = {name: 'cpython', major, minor, patch, prerelease: '', variant: null, build: '1'};
  const list = {[PINNED]: {...system, ...version, url, sha256: await digestOf(archive)}};
  return pathToFileURL(folder.put('downloads.json', JSON.stringify(list))).href;
}

async function unpacked({archive}: Environment, place: string): Promise<string> {
  mkdirSync(place, {recursive: true});
  await run('tar', ['-xzf', archive, '-C', place]);
  return place;
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
