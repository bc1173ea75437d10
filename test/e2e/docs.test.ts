/** The commands of the pages work as they are written. */
import assert from 'node:assert/strict';
import type {ChildProcess} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {featureFile} from '../../client/views/feature.ts';
import {firstSamples} from '../../client/views/first-samples.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {readPage} from '../support/docs/doc-blocks.ts';
import {end, isLike, type Place, preparePlace, runPage} from '../support/docs/doc-runner.ts';

/** Pages whose blocks run. Further pages plug in here. The quickstart runs a job too, so the page of jobs is in the tier long. */
const RUN_PAGES = ['docs/formats.md', 'docs/quickstart-local.md', 'docs/jobs.md @long'];

describe('commands of the documents', () => {
  const background: ChildProcess[] = [];
  let dir: string;
  let place: Place;
  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-docs-'));
    place = await preparePlace(dir);
  });
  afterEach(async () => {
    for (const child of background.splice(0)) await end(child);
    rmSync(dir, {recursive: true, force: true});
  });

  const page = (info: string, ...lines: string[]) => [`\`\`\`${info}`, ...lines, '```'].join('\n');
  const fixtures: {name: string; text: string; fails?: RegExp}[] = [
    {
      name: 'an output with a wildcard',
      text: `${page('sh run', 'echo one two three')}\n${page('text', 'one … three')}`,
    },
    {name: 'a line that exits with 1', text: page('sh run', 'false # exits with 1', 'echo after')},
    {name: 'a block of Python', text: page('python run', 'import gleaner_reader')},
    {
      name: 'a line that fails before the last line',
      text: page('sh run', 'false', 'true'),
      fails: /exited with 1/,
    },
    {
      name: 'a line that wrongly succeeds',
      text: page('sh run', 'true # exits with 1', 'true'),
      fails: /exited with 1/,
    },
    {
      name: 'other numbers than the measured ones',
      text: `${page('sh run', 'echo loss 3.25, 7 of 1,024')}\n${page('text measured', 'loss 4, 1 of 2')}`,
    },
    {
      name: 'another output beside measured numbers',
      text: `${page('sh run', 'echo loss 3.25')}\n${page('text measured', 'gain 3.25')}`,
      fails: /output differs/,
    },
    {
      name: 'another output',
      text: `${page('sh run', 'echo one')}\n${page('text', 'two')}`,
      fails: /output differs/,
    },
    {name: 'a background process that ends', text: page('sh background', 'false'), fails: /ended with 1/},
  ];
  for (const {name, text, fails} of fixtures)
    it(`a page with ${name} ${fails ? 'fails' : 'passes'}`, async () => {
      const ran = runPage(place, 'fixture.md', background, text);
      if (fails) await assert.rejects(ran, fails);
      else assert.equal((await ran).length, 1);
    });

  for (const each of RUN_PAGES)
    it(`${each} works as it is written`, async () => {
      const outputs = await runPage(place, each.replace(' @long', ''), background);
      assert.ok(outputs.length > 0);
    });

  it('docs/tutorial.md works with short trainings and few texts', async () => {
    const short = readPage('docs/tutorial.md')
      .replaceAll(/STEPS=\d+/g, 'STEPS=20 --env BATCH=1')
      .replace('tutorial 1000', 'tutorial 40')
      .replace('--num-streams 2', '--num-streams 1');
    const options = '--to features --layer 2 --site sae --ids 3 --output one';
    const more = `\n\`\`\`sh run\nnpx gleaner run export features ${options}\n\`\`\`\n`;
    const printed = (await runPage(place, 'docs/tutorial.md', background, short + more)).join('\n');
    assert.match(printed, /begins at step [1-9]/);
    assert.match(printed, /^digit: feature \d+, precision [\d.]+, recall [\d.]+$/m);
    // The pages take only what the reader and the worker really write.
    const lm = '.gleaner/local/buckets/gleaner-local/activations/lm/tpu_0/samples.json';
    const [feature, samples] = ['one/3.json', lm].map(name => readFileSync(join(dir, name), 'utf8'));
    assert.equal(parseJson(featureFile, feature ?? '', 'a feature').layer, 2);
    assert.equal(parseJson(firstSamples, samples ?? '', 'samples').samples.length, 3);
  });

  it('docs/tutorial.md shows plain features @long', async () => {
    const printed = (await runPage(place, 'docs/tutorial.md', background)).join('');
    const numbers = [/explained variance (\S+),/, /accuracy (\S+);/, /^digit: .* precision (\S+),/m];
    const [explained = 0, accuracy = 0, precision = 0] = numbers.map(each => Number(each.exec(printed)?.[1]));
    assert.ok(explained > 0.85 && accuracy > 0.9 && precision > 0.6, printed);
  });

  it('lines of an output are compared in their order', () => {
    assert.ok(isLike(['a …', 'c'], 'a 1\nb\nc\n'));
    assert.ok(!isLike(['c', 'a …'], 'a 1\nb\nc\n'));
  });
});
