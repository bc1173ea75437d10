/** The zip of the functions that an earlier build left in `dist/`. A build takes it while each file that it was made from is the same. */
import {hash} from 'node:crypto';
import {readFileSync, statSync} from 'node:fs';
import {readFile, rename, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {build} from 'esbuild';
import {zipSync} from 'fflate';
import {z} from 'zod';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {computeProtos} from './compute-protos.ts';
import {lockOf, type Manifest} from './package-lock.ts';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Runtime of the functions. It stays outside of the bundle: its program and the bundle must share one registry. */
const FRAMEWORK = '@google-cloud/functions-framework';

/** Name of a file in the zip, with `/` between folders, and its bytes. */
type Files = Map<string, Uint8Array>;

const LOCK = 'package-lock.json';
const MANIFEST = 'package.json';
const STARTUP = 'worker-startup/startup.sh';

/** Sources of the zip beside its modules: files of the package, this code, esbuild and its settings. */
const OTHER_SOURCES = [
  ...[LOCK, MANIFEST, STARTUP, 'tsconfig.json', 'cli/build/functions.ts', 'cli/build/package-lock.ts'],
  'cli/build/compute-protos.ts',
  ...['esbuild/package.json', 'fflate/package.json', '.package-lock.json'].map(
    name => `node_modules/${name}`,
  ),
];

/**
 * The zip of the functions, and the files that it was made from, relative to the repository. The same files give the same bytes.
 * `modules`: sources that the bundle contains.
 */
type FunctionsZip = {zip: Uint8Array; modules: string[]; sources: string[]};

/**
 * Bundles every function into one package: `functions/index.js` registers them, and each client is a chunk that loads at its first use.
 * The package keeps the folders of the repository, so code that reads a file beside itself finds it.
 */
export async function zipFunctions(): Promise<FunctionsZip> {
  const {outputFiles, metafile} = await build({
    absWorkingDir: ROOT,
    entryPoints: {'functions/index': 'functions/index.ts'},
    chunkNames: 'chunks/[name]-[hash]',
    outdir: ROOT,
    write: false,
    metafile: true,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    minify: true,
    // A stack in the log names functions as the sources do.
    keepNames: true,
    legalComments: 'none',
    external: [FRAMEWORK],
    banner: {js: REQUIRE},
    // CommonJS packages read their folder from names that an ES module lacks.
    define: {__dirname: 'import.meta.dirname', __filename: 'import.meta.filename'},
    plugins: [computeProtos],
    logLevel: 'error',
  });
  const files: Files = new Map();
  for (const {path, contents} of outputFiles) files.set(path.slice(ROOT.length), contents);
  const text = (content: unknown) => Buffer.from(`${JSON.stringify(content, null, 2)}\n`);
  const manifest = await manifestOf();
  files.set(MANIFEST, text(manifest));
  files.set(LOCK, text(lockOf(manifest, JSON.parse(await source(LOCK)))));
  files.set(STARTUP, Buffer.from(await source(STARTUP)));
  const modules = Object.keys(metafile.inputs);
  const sources = new Set([...modules, ...modules.flatMap(packageOf), ...OTHER_SOURCES]);
  return {zip: zipOf(files), modules, sources: [...sources]};
}

/** The manifest of the package of a module: it says which file an import means. */
function packageOf(module: string): string[] {
  const [, folder] = /^(.*\bnode_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(module) ?? [];
  return folder ? [`${folder}/package.json`] : [];
}

function zipOf(files: Files): Uint8Array {
  // A zip stores local time, so the date is the same in every time zone.
  const options = {mtime: new Date(1980, 0, 1), level: 9, os: 3, attrs: 0o100644 << 16} as const;
  const sorted = [...files].sort(([one], [other]) => (one < other ? -1 : 1));
  return zipSync(Object.fromEntries(sorted), options);
}

/** Gives `require` to CommonJS packages inside of ES modules. */
const REQUIRE =
  "import {createRequire as gleanerRequire} from 'node:module'; const require = gleanerRequire(import.meta.url);";

async function manifestOf(): Promise<Manifest> {
  const {version, dependencies} = JSON.parse(await source(MANIFEST));
  return {
    name: 'gleaner-functions',
    version,
    private: true,
    type: 'module',
    main: 'functions/index.js',
    dependencies: {[FRAMEWORK]: dependencies[FRAMEWORK]},
  };
}

function source(path: string): Promise<string> {
  return readFile(join(ROOT, path), 'utf8');
}

/** File in `dist/` with the digest of the zip and of its sources. The digest of an absent source is null. */
const RECORD = 'functions.json';

const recordForm = z.strictObject({zip: z.string(), sources: z.record(z.string(), z.string().nullable())});

/** Times of files are a little behind the clock. */
const BEHIND_MS = 1000;

/** The zip of `dist/`, if a build of the sources would give the same bytes. `root`: folder of the sources. */
export function keptZip(dist: string, root: string): Uint8Array | undefined {
  const record = readRecord(join(dist, RECORD));
  if (!record) return undefined;
  for (const [source, digest] of Object.entries(record.sources))
    if (digestOf(join(root, source)) !== digest) return undefined;
  const zip = join(dist, `functions-${record.zip}.zip`);
  return digestOf(zip) === record.zip ? readFileSync(zip) : undefined;
}

/** Records the sources of the zip in `dist/`, unless one of them changed or went after the start of the build at `began_ms`. */
export async function recordZip(
  dist: string,
  root: string,
  {zip, modules, sources}: FunctionsZip,
  began_ms: number,
): Promise<void> {
  const digests = Object.fromEntries(sources.map(source => [source, digestOf(join(root, source))]));
  if (modules.some(module => digests[module] === null)) return;
  // The times come after the digests: a source that is saved between the two is no longer that of the zip.
  const times = sources.map(source => statSync(join(root, source), {throwIfNoEntry: false})?.ctimeMs ?? 0);
  if (Math.max(...times) >= began_ms - BEHIND_MS) return;
  const record: z.infer<typeof recordForm> = {
    zip: hash('sha256', zip),
    sources: digests,
  };
  const unfinished = join(dist, `${RECORD}.${process.pid}`);
  await writeFile(unfinished, JSON.stringify(record));
  await rename(unfinished, join(dist, RECORD));
}

function readRecord(file: string): z.infer<typeof recordForm> | undefined {
  try {
    return parseJson(recordForm, readFileSync(file, 'utf8'), file);
  } catch {
    // Without a record, or with a damaged one, the zip is made again.
    return undefined;
  }
}

function digestOf(path: string): string | null {
  try {
    return hash('sha256', readFileSync(path));
  } catch {
    return null;
  }
}
