import {join} from 'node:path';
import {print, say} from '../terminal/output.ts';
import {buildArtifacts, DIST, VARIABLES_FILE} from './artifacts.ts';

/** Builds the artefacts of a deployment into `dist/`, and prints their sizes and digests. */
export async function build({json}: {json?: boolean}): Promise<void> {
  say('Building the functions and the worker bundle');
  const {functions, bundle, module} = await buildArtifacts();
  const variables = join(DIST, VARIABLES_FILE);
  const line = (what: string, {file, size_bytes}: {file: string; size_bytes: number}) =>
    `${what.padEnd(10)} ${(size_bytes / 1e6).toFixed(1).padStart(4)} MB  dist/${file}`;
  print<'build'>(json, {dist: DIST, variables, functions, bundle, module}, [
    line('functions', functions),
    line('worker', bundle),
    `${'variables'.padEnd(10)}          dist/${VARIABLES_FILE}`,
  ]);
}
