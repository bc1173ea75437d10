import {readFile} from 'node:fs/promises';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {build} from 'esbuild';
import {lockOf, type Manifest} from './package-lock.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Runtime of the functions. It stays outside of the bundle: its program and the bundle must share one registry. */
const FRAMEWORK = '@google-cloud/functions-framework';

/** Name of a file in the zip, with `/` between folders, and its bytes. */
export type Files = Map<string, Uint8Array>;

/**
 * Bundles every function into one package: `functions/index.js` registers them, and each client is a chunk that loads at its first use.
 * The package keeps the folders of the repository, so code that reads a file beside itself finds it.
 */
export async function bundleFunctions(): Promise<Files> {
  const {outputFiles} = await build({
    absWorkingDir: ROOT,
    entryPoints: {'functions/index': 'functions/index.ts'},
    chunkNames: 'chunks/[name]-[hash]',
    outdir: ROOT,
    write: false,
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
    logLevel: 'error',
  });
  const files: Files = new Map();
  for (const {path, contents} of outputFiles) files.set(path.slice(ROOT.length), contents);
  const text = (content: unknown) => Buffer.from(`${JSON.stringify(content, null, 2)}\n`);
  const manifest = await manifestOf();
  files.set('package.json', text(manifest));
  files.set('package-lock.json', text(lockOf(manifest, JSON.parse(await source('package-lock.json')))));
  files.set('worker-startup/startup.sh', Buffer.from(await source('worker-startup/startup.sh')));
  return files;
}

/** Gives `require` to CommonJS packages inside of ES modules. */
const REQUIRE =
  "import {createRequire as gleanerRequire} from 'node:module'; const require = gleanerRequire(import.meta.url);";

async function manifestOf(): Promise<Manifest> {
  const {version, dependencies} = JSON.parse(await source('package.json'));
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
