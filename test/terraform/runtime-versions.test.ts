import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {RUNTIME_VERSIONS, runtimeOf, runtimeProblem} from '../../shared/domain/fleet/accelerators.ts';
import {ROOT} from '../support/process.ts';

/** Generations and versions of `local.runtime_versions`. */
function versionsOfTerraform(): [generation: string, versions: string[]][] {
  const text = readFileSync(`${ROOT}terraform/functions.tf`, 'utf8');
  const table = /runtime_versions = \{\n([\s\S]*?)\n {2}\}/.exec(text)?.[1] ?? '';
  return [...table.matchAll(/^ +(\w+) += (\[.*\])$/gm)].map(([, generation = '', versions = '']) => [
    generation,
    JSON.parse(versions),
  ]);
}

describe('the runtime versions of terraform/', () => {
  it('are those of the control plane, with the same defaults', () => {
    const table = versionsOfTerraform();
    assert.deepEqual([...new Set(table.flatMap(([, versions]) => versions))].sort(), RUNTIME_VERSIONS);
    for (const [generation, versions] of table) {
      assert.equal(runtimeOf(`${generation}-8`), versions[0]);
      for (const version of RUNTIME_VERSIONS)
        assert.equal(runtimeProblem(`${generation}-8`, version) === undefined, versions.includes(version));
    }
  });
});
