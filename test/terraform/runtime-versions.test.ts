import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {
  IMAGE_FAMILIES,
  RUNTIME_VERSIONS,
  runtimeOf,
  runtimeProblem,
} from '../../shared/domain/fleet/accelerators.ts';
import {ROOT} from '../support/machine/process.ts';

/** Generations and versions of a table of `terraform/functions.tf`. */
function versionsOfTerraform(name: string): [generation: string, versions: string[]][] {
  const text = readFileSync(`${ROOT}terraform/functions.tf`, 'utf8');
  const table = new RegExp(`${name} = \\{\\n([\\s\\S]*?)\\n {2}\\}`).exec(text)?.[1] ?? '';
  return [...table.matchAll(/^ +(\w+) += (\[.*\])$/gm)].map(([, generation = '', versions = '']) => [
    generation,
    JSON.parse(versions),
  ]);
}

describe('the runtime versions of terraform/', () => {
  for (const [name, provider, known] of [
    ['node_versions', 'tpu-api', RUNTIME_VERSIONS],
    ['images', 'compute-engine', IMAGE_FAMILIES],
  ] as const)
    it(`are those of the control plane for ${provider}, with the same defaults`, () => {
      const table = versionsOfTerraform(name);
      assert.deepEqual([...new Set(table.flatMap(([, versions]) => versions))].sort(), known);
      for (const [generation, versions] of table) {
        const type = `${generation}-8`;
        assert.equal(runtimeOf(type, provider), versions[0]);
        for (const version of known)
          assert.equal(runtimeProblem(type, version, provider) === undefined, versions.includes(version));
      }
    });
});
