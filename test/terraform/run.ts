/** Checks and tests `terraform/`: format, validation, and `terraform test`, whose summary is the last line. */
import {spawnSync} from 'node:child_process';
import {openWorkspace} from '../../cli/terraform/workspace.ts';
import {ROOT} from '../support/machine/process.ts';
import {unknownElements} from './unknown-elements.ts';

const format = spawnSync('terraform', [`-chdir=${ROOT}terraform`, 'fmt', '-check', '-diff', '-recursive'], {
  encoding: 'utf8',
});
if (format.status !== 0) {
  console.log(`terraform/ has another format than terraform fmt writes:\n${format.stdout}${format.stderr}`);
  process.exitCode = 1;
}

const workspace = await openWorkspace(unknownElements);
try {
  if (workspace.providers === 'stand-in')
    console.log('The providers are not installed: a stand-in serves their schemas');
  for (const args of [['validate'], ['test']]) {
    const {code, lines} = await workspace.terraform(...args);
    for (const line of lines) console.log(line);
    if (code !== 0) process.exitCode = code;
  }
} finally {
  await workspace.close();
}
