/**
 * Each program as one file in `node_modules/.cache/gleaner`, because Node loads it in half of the time that hundreds of modules take. A file is
 * used while it and its sources have not changed since it was made.
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

/** A file that was written just now may have an earlier time. */
const BEHIND_MS = 1000;

/** No command still makes or loads files of this age. */
const SETTLED_MS = 3600 * 1000;

const PROGRAMS = {cli: 'cli/main.ts', functions: 'functions/index.ts'};

/** Packages that are part of a file. Others load from `node_modules` when they are needed. */
const INSIDE = /^(zod|commander|fastest-levenshtein)(\/|$)/;

/** Size and time of change of each source. */
function stampsOf(root: string, sources: readonly string[]): [size: number, changed_ms: number][] {
  return sources.map(source => {
    const {size, ctimeMs} = statSync(`${root}/${source}`);
    return [size, ctimeMs];
  });
}

/** Path of the file of a program; undefined where it is not there, or older than a source. */
export function keptFile(root: string, name: string): string | undefined {
  try {
    const kept = JSON.parse(readFileSync(join(cacheOf(root), 'kept.json'), 'utf8'));
    const holds = kept.root === root && stampsOf(root, kept.files).join() === kept.stamps.join();
    return holds ? join(cacheOf(root), kept.folder, `${name}.cjs`) : undefined;
  } catch {
    return undefined;
  }
}

/** Makes the file of each program from its first module, unless a source has just changed. Fails early in a folder of somebody else. */
export async function keepFiles(
  root: string,
  entryPoints: Record<string, string> = PROGRAMS,
  began_ms = Date.now(),
): Promise<void> {
  const folder = `${process.pid}-${began_ms}`;
  const outdir = join(cacheOf(root), folder);
  mkdirSync(outdir, {recursive: true});
  const {build} = await import('esbuild');
  const {metafile} = await build({
    absWorkingDir: root,
    entryPoints,
    outdir,
    outExtension: {'.js': '.cjs'},
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node24',
    metafile: true,
    sourcemap: 'external',
    sourcesContent: false,
    minifyWhitespace: true,
    logLevel: 'silent',
    define: {'import.meta.url': 'sourceUrl'},
    plugins: [{name: 'sources', setup}],
  });
  const sources = [
    'node_modules/.package-lock.json',
    'package.json',
    'emulator/functions/one-file.ts',
    ...Object.keys(metafile.inputs),
  ];
  const isNew = stampsOf(root, sources).some(([, changed_ms]) => changed_ms >= began_ms - BEHIND_MS);
  if (isNew) return rmSync(outdir, {recursive: true});
  const files = [...sources, ...Object.keys(metafile.outputs)];
  const record = join(outdir, 'kept.json');
  writeFileSync(record, JSON.stringify({root, folder, files, stamps: stampsOf(root, files)}));
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

const maps = new Map<string, SourceMap>();

/** A stack, or a line of a log, with the places in the sources. */
export function sourceStack(stack: string): string {
  return stack.replaceAll(
    /(\/[^\n(]*\.cache\/gleaner\/[^\n(]*\.cjs):(\d+):(\d+)/g,
    (place, file, line, column) => {
      if (!maps.has(file) && existsSync(`${file}.map`))
        maps.set(file, new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8'))));
      const origin = maps.get(file)?.findOrigin(Number(line), Number(column));
      if (!origin || !('fileName' in origin)) return place;
      return `${resolve(dirname(file), String(origin.fileName))}:${origin.lineNumber}:${origin.columnNumber}`;
    },
  );
}
