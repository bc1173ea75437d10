import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {createHash} from 'node:crypto';
import {createReadStream, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync} from 'node:fs';
import {homedir} from 'node:os';
import {isAbsolute, join} from 'node:path';
import {pipeline} from 'node:stream/promises';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';
import {readElf} from '../../../../cli/build/environment/elf.ts';
import type {Environment} from '../../../../cli/build/environment/environment.ts';
import {filesIn} from '../../../../cli/build/environment/portable.ts';
import {environmentFolder, LOCK, UV_CACHE, WORKER_FOLDER} from '../../../../cli/python/python.ts';
import {Folder} from '../../../support/folder.ts';
import {workerEnvironment} from '../../../support/worker-environment.ts';

const run = promisify(execFile);
const BUILDER = fileURLToPath(new URL('../../../support/worker-environment.ts', import.meta.url));
const IMPORTS = `
import jax, json, sqlite3, ssl, sys, google.cloud.storage
print(json.dumps([sys.prefix, sys.executable, str(jax.numpy.ones(3).sum()), ssl.create_default_context().cert_store_stats()["x509"]]))
`;

describe('The archive of the worker environment @full', () => {
  const folder = new Folder();
  let built: Environment;
  let place: string;
  before(async () => {
    built = await workerEnvironment();
    place = folder.at(`env-${built.key}`);
    mkdirSync(place, {recursive: true});
    await run('tar', ['-xzf', built.archive, '-C', place]);
  });
  after(() => folder.end());

  it('starts JAX from another folder, without a variable of this machine', async () => {
    const {stdout} = await run(join(place, 'bin/python3'), ['-c', IMPORTS], {env: {JAX_PLATFORMS: 'cpu'}});
    const [prefix, executable, sum, certificates] = JSON.parse(stdout);
    assert.deepEqual([prefix, executable, sum], [place, join(place, 'bin/python3'), '3.0']);
    assert.ok(certificates > 0, 'ssl finds the certificates of the system');
  });

  it('makes the environment of a job with its own uv and Python', async () => {
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

  it('names its lock file as other environments do', async () => {
    const name = readFileSync(join(place, 'lock-sha256'), 'utf8').slice(0, 16);
    assert.equal(`env-${name}`, (await environmentFolder(LOCK)).split('/').at(-1));
  });

  it('holds no link, no test and no path of the build', async () => {
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

describe('Two builds of a worker environment at once @long', () => {
  const folder = new Folder();
  after(() => folder.end());

  it('publish the same bytes, and remove what a killed build left', async () => {
    const cache = folder.at('gleaner');
    mkdirSync(cache);
    symlinkSync(UV_CACHE, join(cache, 'uv'));
    folder.put('gleaner/environments/0.unfinished.99999999/tree/file', '');
    const env = {...process.env, XDG_CACHE_HOME: folder.path};
    const builds = await Promise.all([1, 2].map(() => run(process.execPath, [BUILDER], {env})));
    const [one, two] = builds.map(({stdout}) => JSON.parse(stdout));
    assert.deepEqual(one, two);
    assert.deepEqual(folder.names('gleaner/environments'), [one.key]);
    assert.equal(await digestOf(one.archive), one.sha256);
    rmSync(join(cache, 'environments'), {recursive: true});
    const again = JSON.parse((await run(process.execPath, [BUILDER], {env})).stdout);
    assert.deepEqual(again, one);
    assert.ok(existsSync(again.archive));
  });
});

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
