import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {createHash} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {unzipSync} from 'fflate';
import {extract} from 'tar';
import {buildArtifacts, DIST, VARIABLES_FILE} from '../../../cli/build/artifacts.ts';
import {lockOf, type Manifest} from '../../../cli/build/package-lock.ts';
import {putBuiltEnvironment} from '../../support/machine/built-environment.ts';
import {gleaner} from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
/** Prints the digest and the sources of a new zip. */
const MAKE_ZIP = `
import {createHash} from 'node:crypto';
import {zipFunctions} from '${ROOT}cli/build/functions.ts';
const {zip, sources} = await zipFunctions();
console.log(JSON.stringify({sha256: createHash('sha256').update(zip).digest('hex'), sources}));
`;

/** Of each kind a file whose change changes the zip. */
const SOURCES = [
  ...['functions/on-tick.ts', 'shared/domain/names.ts', 'worker-startup/startup.sh', 'tsconfig.json'],
  ...['package.json', 'package-lock.json', 'cli/build/functions.ts', 'node_modules/esbuild/package.json'],
  ...['node_modules/zod/package.json', 'node_modules/@google-cloud/firestore/package.json'],
];

describe('gleaner build @full', () => {
  const folder = new Folder(after);
  let built: Awaited<ReturnType<typeof buildArtifacts>>;
  let env: NodeJS.ProcessEnv;
  before(async () => {
    const environment = await putBuiltEnvironment(folder.path);
    built = await buildArtifacts(environment);
    env = {...process.env, XDG_CACHE_HOME: folder.path};
  });

  it('gleaner build makes the same bytes again, also in another time zone', () => {
    const there = {...env, TZ: 'Pacific/Kiritimati'};
    const output = execFileSync(process.execPath, [`${ROOT}cli/main.ts`, 'build', '--json'], {env: there});
    const {dist: _dist, variables: _variables, ...again} = JSON.parse(output.toString());
    assert.deepEqual(again, built);
    // The build above may take the zip of `dist/`.
    const made = execFileSync(process.execPath, ['--input-type=module', '-e', MAKE_ZIP], {env: there});
    const {sha256, sources} = JSON.parse(made.toString());
    assert.equal(sha256, built.functions.sha256);
    assert.deepEqual(
      SOURCES.filter(source => !sources.includes(source)),
      [],
    );
  });

  it('gleaner build names all artefacts and their digests to Terraform', () => {
    const {artifacts} = JSON.parse(readFileSync(DIST + VARIABLES_FILE, 'utf8'));
    for (const kind of ['functions', 'bundle', 'environment'] as const) {
      const {file, sha256} = artifacts[kind];
      assert.equal(
        createHash('sha256')
          .update(readFileSync(DIST + file))
          .digest('hex'),
        sha256,
      );
      assert.equal(sha256, built[kind]?.sha256);
    }
  });

  it('gleaner build lists the packages of npm and of Python with their licences, and the digests of its artefacts', async () => {
    const {components} = JSON.parse(readFileSync(DIST + built.sbom.file, 'utf8'));
    const purls: string[] = components.map(({purl}: {purl: string}) => purl);
    assert.ok(
      purls.some(purl => /^pkg:npm\/%40google-cloud\/firestore@\d/.test(purl)),
      purls.join(),
    );
    const python = components.filter(({purl}: {purl: string}) => purl.startsWith('pkg:pypi/'));
    const licenceOf = (name: string) =>
      python.find((each: {name: string}) => each.name === name)?.licenses?.[0].license.name;
    assert.deepEqual([licenceOf('jax'), licenceOf('jinja2')], ['Apache-2.0', 'BSD License']);
    assert.match(licenceOf('libtpu'), /Google/);
    assert.ok(python.every(({licenses}: {licenses?: unknown[]}) => licenses?.length === 1));
    assert.ok(!purls.some(purl => /colorama|jsfetch/.test(purl)));
    assert.equal(built.sbom.components, purls.length);
    assert.ok((built.sbom.licences.MIT ?? 0) > 50, JSON.stringify(built.sbom.licences));
    const {stdout} = await gleaner(['--version']);
    assert.match(stdout, new RegExp(`^0\\.1\\.0\\nfunctions sha256:${built.functions.sha256}\\n`));
  });

  it('gleaner build names the environment in the worker bundle', async () => {
    await extract({file: DIST + built.bundle.file, cwd: folder.path}, ['environment']);
    const {key, sha256, size_bytes} = await putBuiltEnvironment(folder.path);
    assert.equal(folder.text('environment'), `${key} ${sha256} ${size_bytes}\n`);
  });

  it('gleaner build packs the startup script where the functions read it', () => {
    const files = unzipSync(readFileSync(DIST + built.functions.file));
    const script = readFileSync(`${ROOT}worker-startup/startup.sh`, 'utf8');
    assert.equal(Buffer.from(files['worker-startup/startup.sh'] ?? []).toString(), script);
    assert.ok(files['functions/index.js'], 'the entry of the package is in the zip');
  });

  it('gleaner build locks only packages that the functions framework needs, in the versions of the repository', () => {
    const files = unzipSync(readFileSync(DIST + built.functions.file));
    const lock = JSON.parse(Buffer.from(files['package-lock.json'] ?? []).toString());
    const whole = JSON.parse(readFileSync(`${ROOT}package-lock.json`, 'utf8'));
    const places = Object.keys(lock.packages).filter(place => place !== '');
    assert.ok(places.includes('node_modules/express'));
    assert.ok(!places.includes('node_modules/@google-cloud/firestore'));
    for (const place of places) {
      assert.equal(lock.packages[place].version, whole.packages[place].version);
      assert.equal(lock.packages[place].integrity, whole.packages[place].integrity);
    }
  });
});

describe('Lock file of a part of the packages', () => {
  const manifest: Manifest = {
    name: 'part',
    version: '1.0.0',
    private: true,
    type: 'module',
    main: 'index.js',
    dependencies: {a: '1.0.0'},
  };

  it('Lock file of a part of the packages takes the copy of a package that is nearest to its dependent', () => {
    const lock = lockOf(manifest, {
      lockfileVersion: 3,
      packages: {
        'node_modules/a': {dependencies: {b: '^1.0.0', c: '^1.0.0'}},
        'node_modules/a/node_modules/b': {dependencies: {c: '^1.0.0'}},
        'node_modules/b': {},
        'node_modules/c': {dev: true},
        'node_modules/d': {},
      },
    });
    assert.deepEqual(lock.packages, {
      '': {name: 'part', version: '1.0.0', dependencies: {a: '1.0.0'}},
      'node_modules/a': {dependencies: {b: '^1.0.0', c: '^1.0.0'}},
      'node_modules/a/node_modules/b': {dependencies: {c: '^1.0.0'}},
      'node_modules/c': {},
    });
  });

  it('Lock file of a part of the packages names a package that the lock file of the repository lacks', () => {
    assert.throws(() => lockOf(manifest, {lockfileVersion: 3, packages: {}}), /Failed to lock a/);
  });
});
