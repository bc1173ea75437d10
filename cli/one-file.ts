/**
 * A program as one file in `node_modules/.cache/gleaner`: Node loads it in a third of the time that its hundreds of modules take. The file
 * holds while the folder and every source are those that it was made from.
 */
import {mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync} from 'node:fs';
import {createRequire, SourceMap} from 'node:module';
import {dirname, join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';
import type {PluginBuild} from 'esbuild';

const cacheOf = (root: string) => join(root, 'node_modules', '.cache', 'gleaner');

/** Times of files are a little behind the clock. */
const BEHIND_MS = 1000;

/** Packages that are part of the file. Others load from `node_modules` when a command needs them. */
const INSIDE = /^(zod|commander|fastest-levenshtein)(\/|$)/;

/** Size and time of change of each source. */
function stampsOf(root: string, sources: readonly string[]): [size: number, changed_ms: number][] {
  return sources.map(source => {
    const {size, ctimeMs} = statSync(`${root}/${source}`);
    return [size, ctimeMs];
  });
}

/** Path of the file of a program; undefined without one that holds. */
export function keptFile(root: string, name: string): string | undefined {
  try {
    const kept = JSON.parse(readFileSync(join(cacheOf(root), `${name}.json`), 'utf8'));
    const holds = kept.root === root && stampsOf(root, kept.sources).join() === kept.stamps.join();
    return holds ? join(cacheOf(root), kept.file) : undefined;
  } catch {
    return undefined;
  }
}

/** Loads the file. Errors name the sources: the map is read with the first stack. */
export function loadFile(file: string): {ended?: Promise<void>} {
  let map: SourceMap | undefined;
  const placeOf = (call: NodeJS.CallSite): string => {
    if (call.getFileName() !== file) return `${call}`;
    map ??= new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')));
    const origin = map.findOrigin(call.getLineNumber() ?? 0, call.getColumnNumber() ?? 0);
    if (!('fileName' in origin)) return `${call}`;
    const source = resolve(dirname(file), String(origin.fileName));
    return `${call}`.replace(/[^ (]*:\d+:\d+/, `${source}:${origin.lineNumber}:${origin.columnNumber}`);
  };
  Error.prepareStackTrace = (error, calls) =>
    [`${error}`, ...calls.map(call => `    at ${placeOf(call)}`)].join('\n');
  return createRequire(file)(file);
}

/** Makes the file of a program from its first module, unless a source has just changed. */
export async function keepFile(
  root: string,
  name: string,
  entry: string,
  began_ms = Date.now(),
): Promise<void> {
  const file = `${name}-${process.pid}-${began_ms}.cjs`;
  const {build} = await import('esbuild');
  const {outputFiles, metafile} = await build({
    ...{absWorkingDir: root, entryPoints: [entry], outfile: join(cacheOf(root), file), write: false},
    ...{bundle: true, format: 'cjs', platform: 'node', target: 'node24', sourcemap: 'external'},
    ...{minifyWhitespace: true, minifySyntax: true},
    ...{metafile: true, sourcesContent: false, legalComments: 'none', logLevel: 'silent'},
    define: {'import.meta.url': 'sourceUrl'},
    plugins: [{name: 'sources', setup}],
  });
  const sources = ['node_modules/.package-lock.json', 'cli/one-file.ts', ...Object.keys(metafile.inputs)];
  const stamps = stampsOf(root, sources);
  if (stamps.some(([, changed_ms]) => changed_ms >= began_ms - BEHIND_MS)) return;
  mkdirSync(cacheOf(root), {recursive: true});
  for (const {path, contents} of outputFiles) writeFileSync(path, contents);
  const record = join(cacheOf(root), `${name}.json`);
  writeFileSync(`${record}.${process.pid}`, JSON.stringify({root, file, sources, stamps}));
  renameSync(`${record}.${process.pid}`, record);
  for (const other of readdirSync(cacheOf(root)))
    if (other.startsWith(`${name}-`) && !other.startsWith(file))
      rmSync(join(cacheOf(root), other), {force: true});
}

/** A module reads files beside its source, so it keeps that address. Zod's messages are in English alone. */
function setup(build: PluginBuild): void {
  build.onResolve({filter: /^[^./]/}, ({path, kind}) =>
    kind === 'entry-point' || INSIDE.test(path) ? undefined : {external: true},
  );
  build.onLoad({filter: /\.ts$/}, ({path}) => ({
    loader: 'ts',
    contents: `const sourceUrl = ${JSON.stringify(pathToFileURL(path).href)};${readFileSync(path, 'utf8')}`,
  }));
  build.onLoad({filter: /zod.v4.locales.index\.js$/}, () => ({
    contents: "export {default as en} from './en.js'",
  }));
}
