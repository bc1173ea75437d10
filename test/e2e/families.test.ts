import assert from 'node:assert/strict';
import {mkdtemp, readdir, readFile, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {runWorkerModule} from '../../cli/python/python.ts';
import {FAMILIES} from '../../shared/contracts/model-config.ts';
import {TestHome, texts} from './home.ts';

/** gemma3_text is the text part of gemma3. */
const families = Object.keys(FAMILIES).filter(family => family !== 'gemma3');
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
      sites: ['resid_post', 'mlp_out'],
    };
    await home.drop(`datasets/${runOf(family)}/run.json`, JSON.stringify(spec));
    await home.drop(`datasets/${runOf(family)}/stream_000.jsonl`, texts(20, family));
  }

  for (const family of families)
    it(`extracts and verifies a run of ${family}`, async () => {
      const view = await home.runEnds(runOf(family));
      assert.equal(view?.run.status, 'completed', view?.run.reason ?? '');
      const report = await home.verify(runOf(family));
      assert.deepEqual([report.ok, report.stored_once, report.problems], [true, 20, []]);
    });
});
