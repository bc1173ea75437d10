import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {openWorkspace} from '../../cli/terraform/workspace.ts';
import {ROOT} from '../support/machine/process.ts';
import {textOf, trimSchemas} from './trim-schemas.ts';

describe('the schemas of the stand-in', () => {
  it('are those of the kinds that the configuration uses, as Terraform reads them', async () => {
    const workspace = await openWorkspace();
    try {
      // Terraform tells schemas only with a backend that it can open.
      await writeFile(
        join(workspace.folder, 'backend_override.tf'),
        'terraform {\n  backend "local" {}\n}\n',
      );
      await workspace.terraform('init', '-input=false', '-reconfigure');
      const {lines} = await workspace.terraform('providers', 'schema', '-json');
      const described = JSON.parse(lines.find(line => line.startsWith('{')) ?? assert.fail(lines.join('\n')));
      const stored = readFileSync(`${ROOT}cli/terraform/schemas.json`, 'utf8');
      assert.equal(textOf(trimSchemas(described)), stored);
    } finally {
      await workspace.close();
    }
  });
});
