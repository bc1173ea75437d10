/**
 * The programs as one file each, in `node_modules/.cache/gleaner`: Node loads it in half of the time that its hundreds of modules take. The
 * files hold while the folder and every source are those that they were made from.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import {SourceMap} from 'node:module';
import {dirname, join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';
import type {PluginBuild} from 'esbuild';

const cacheOf = (root: string) => join(root, 'node_modules', '.cache', 'gleaner');

/** Times of files are a little behind the clock. */
const BEHIND_MS = 1000;

/** No command still makes or loads files of this age. */
const SETTLED_MS = 3600 * 1000;

/** Packages that are part of a file. Others load from `node_modules` when they are needed. */
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
    const kept = JSON.parse(readFileSync(join(cacheOf(root), 'kept.json'), 'utf8'));
    const holds = kept.root === root && stampsOf(root, kept.sources).join() === kept.stamps.join();
    const file = join(cacheOf(root), kept.folder, `${name}.cjs`);
    return holds && existsSync(file) ? file : undefined;
  } catch {
    return undefined;
  }
}

/** Makes the file of each program from its first module, unless a source has just changed. */
export async function keepFiles(
  root: string,
  entryPoints: Record<string, string>,
  began_ms = Date.now(),
): Promise<void> {
  const folder = `${process.pid}-${began_ms}`;
  const {build} = await import('esbuild');
  const {outputFiles, metafile} = await build({
    ...{absWorkingDir: root, entryPoints, outdir: join(cacheOf(root), folder), outExtension: {'.js': '.cjs'}},
    ...{bundle: true, format: 'cjs', platform: 'node', target: 'node24', write: false, metafile: true},
    ...{sourcemap: 'external', sourcesContent: false, minifyWhitespace: true, logLevel: 'silent'},
    define: {'import.meta.url': 'sourceUrl'},
    plugins: [{name: 'sources', setup}],
  });
  const sources = [
    'node_modules/.package-lock.json',
    'emulator/functions/one-file.ts',
    ...Object.keys(metafile.inputs),
  ];
  const stamps = stampsOf(root, sources);
  if (stamps.some(([, changed_ms]) => changed_ms >= began_ms - BEHIND_MS)) return;
  mkdirSync(join(cacheOf(root), folder), {recursive: true});
  for (const {path, contents} of outputFiles) writeFileSync(path, contents);
  const record = join(cacheOf(root), folder, 'kept.json');
  writeFileSync(record, JSON.stringify({root, folder, sources, stamps}));
  renameSync(record, join(cacheOf(root), 'kept.json'));
  for (const other of readdirSync(cacheOf(root))) {
    const path = join(cacheOf(root), other);
    const isOld = statSync(path).mtimeMs < began_ms - SETTLED_MS;
    if (isOld && other !== folder && other !== 'kept.json') rmSync(path, {recursive: true, force: true});
  }
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

/** A stack with the places in the sources. */
export function sourceStack(stack: string): string {
  return stack.replaceAll(
    /(\/[^\n(]*\.cache\/gleaner\/[^\n(]*\.cjs):(\d+):(\d+)/g,
    (place, file, line, column) => {
      const map = new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')));
      const origin = map.findOrigin(Number(line), Number(column));
      if (!('fileName' in origin)) return place;
      return `${resolve(dirname(file), String(origin.fileName))}:${origin.lineNumber}:${origin.columnNumber}`;
    },
  );
}
