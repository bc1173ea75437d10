import {readFileSync} from 'node:fs';

export const VERSION = '0.1.0';

const ARTIFACT = /"(functions|bundle|environment)":\s*\{[^}]*"sha256":\s*"([0-9a-f]{64})"/g;

/** The version, and the digest of each artefact that the last `gleaner build` made. Runs at each start, so it loads nothing. */
export function versionText(): string {
  let artifacts = '';
  try {
    artifacts = readFileSync(new URL('../../dist/artifacts.auto.tfvars.json', import.meta.url), 'utf8');
  } catch {
    // Nothing was built.
  }
  const digests = [...artifacts.matchAll(ARTIFACT)].map(([, name, sha256]) => `${name} sha256:${sha256}`);
  return [VERSION, ...digests].join('\n');
}
