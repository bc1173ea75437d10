import assert from 'node:assert/strict';
import {mkdtemp, readdir, readFile, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {readComparison} from '../../cli/run/reference.ts';
import type {Report} from '../../cli/run/verify.ts';
import {runWorkerModule} from '../../client/python/python.ts';
import {FAMILIES} from '../../shared/contracts/spec/model-config.ts';
import {gleaner, TestHome, texts} from '../support/machine/home.ts';

/** gemma3_text is the text part of gemma3. */
const families = FAMILIES.filter(family => family !== 'gemma3');
const runOf = (family: string) => family.replaceAll('_', '-');

describe('A local cloud with a tiny model of every family @long', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(1);
    for (const family of families) await dropModel(family);
  });
  after(() => home.remove());

  async function dropModel(family: string): Promise<void> {
    const folder = await mkdtemp(join(tmpdir(), 'gleaner-model-'));
    const made = await runWorkerModule(
      ['gleaner_worker.model.tiny', folder, '--family', family],
      {},
      () => {},
    );
    assert.equal(made.code, 0, made.stderr.join('\n'));
    for (const name of await readdir(folder))
      await home.objects.create(`models/${family}/${name}`, await readFile(join(folder, name)));
    await rm(folder, {recursive: true});
    const spec = {
      model: `gs://${home.ready.bucket}/models/${family}`,
      layers: '0-3',
      dtype: 'fp32',
      compute_dtype: 'fp32',
      sites: ['resid_post', 'mlp_out'],
    };
    await home.drop(`datasets/${runOf(family)}/run.json`, JSON.stringify(spec));
    await home.drop(`datasets/${runOf(family)}/stream_000.jsonl`, texts(20, family));
  }

  for (const family of families)
    it(`extracts a run of ${family} whose rows are those of transformers`, async () => {
      const view = await home.runEnds(runOf(family));
      assert.equal(view?.run.status, 'completed', view?.run.reason ?? '');
      const report = await home.verify(runOf(family));
      assert.deepEqual([report.ok, report.stored_once, report.problems], [true, 20, []]);
      const args = ['verify', runOf(family), '--reference', '2', '--json', '--dir', home.dir];
      const {stdout, stderr} = await gleaner(args);
      const {reference}: Report = JSON.parse(stdout || assert.fail(stderr));
      assert.ok(reference, stdout + stderr);
      assert.equal(Object.keys(reference.drift).length, 8);
      for (const [name, {relative_error, cosine}] of Object.entries(reference.drift))
        assert.ok(relative_error < 1e-5 && cosine > 0.99999, `${name} ${relative_error} ${cosine}`);
      assert.deepEqual(await readComparison(home.objects, runOf(family)), reference);
    });
});
