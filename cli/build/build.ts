import {join} from 'node:path';
import {counted} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {buildArtifacts, DIST, VARIABLES_FILE} from './artifacts.ts';
import {buildEnvironment, builtEnvironment} from './environment/environment.ts';

/**
 * Builds the artefacts of a deployment into `dist/`, and prints their sizes and digests. The environment takes minutes at its first build,
 * so that only the option builds it.
 */
export async function build(options: {environment?: boolean; json?: boolean}): Promise<void> {
  const built = options.environment ? await buildEnvironment({say}) : await builtEnvironment();
  say('Building the functions and the worker bundle');
  const {functions, bundle, environment, sbom, module} = await buildArtifacts(built);
  const variables = join(DIST, VARIABLES_FILE);
  const line = (what: string, {file, size_bytes}: {file: string; size_bytes: number}) =>
    `${what.padEnd(11)} ${(size_bytes / 1e6).toFixed(1).padStart(5)} MB  dist/${file}`;
  print<'build'>(
    options.json,
    {dist: DIST, variables, functions, bundle, ...(environment ? {environment} : {}), sbom, module},
    [
      line('functions', functions),
      line('worker', bundle),
      environment
        ? line('environment', environment)
        : 'environment           not built: a deployment needs `gleaner build --environment`',
      `${'packages'.padEnd(11)}           dist/${sbom.file}: ${counted(sbom.components, 'package')} in CycloneDX`,
      `${'licences'.padEnd(11)}           ${licencesText(sbom.licences)}`,
      `${'variables'.padEnd(11)}           dist/${VARIABLES_FILE}`,
    ],
  );
}

/** The most frequent first. */
function licencesText(licences: Record<string, number>): string {
  const sorted = Object.entries(licences).sort(([a, of_a], [b, of_b]) => of_b - of_a || (a < b ? -1 : 1));
  return sorted.map(([name, count]) => `${name} ${count}`).join(', ');
}
