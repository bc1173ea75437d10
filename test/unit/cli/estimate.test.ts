import assert from 'node:assert/strict';
import {dirname} from 'node:path';
import {earlierRun} from '../../../cli/run/estimate/earlier-run.ts';
import {findTarget} from '../../../cli/run/estimate/target.ts';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {openSqliteStore} from '../../../shared/embedded/sqlite-store.ts';
import {aRun} from '../../support/builders.ts';
import {Folder} from '../../support/folder.ts';

describe('gleaner estimate', () => {
  const folder = new Folder();
  after(() => folder.end());

  it('names what its target and its spec lack', async () => {
    const find = (target: string, spec?: string) => findTarget(target, spec, undefined);
    await assert.rejects(find('./no.jsonl'), /There is no file and no run \.\/no\.jsonl/);
    await assert.rejects(find('cli'), /cli has \d+ files that no run reads/);
    const spec = folder.put('bad.json', '{"modle": 1}');
    await assert.rejects(find('x', spec), /there is no modle/);
  });

  it('takes every stream of a folder, with its run.json', async () => {
    const files = ['stream_000.jsonl', 'stream_001.jsonl'].map(name =>
      folder.put(`streams/${name}`, '{"text": "a"}\n'),
    );
    folder.put('streams/run.json', '{"layers": "0-3"}');
    const {what, args, input} = await findTarget(dirname(files[0] ?? ''), undefined, undefined);
    assert.match(what, /^2 streams of /);
    assert.deepEqual(args, ['--file', files[0], '--file', files[1]]);
    assert.equal(input.layers, '0-3');
  });

  it('names a run that is not there, or has no cost, to estimate like', async () => {
    const store = openSqliteStore(':memory:');
    await store.transaction(async tx => runRecords.set(tx, aRun({run: 'free', spent_usd: 0})));
    const like = (run: string) => earlierRun(run, store, 'v5litepod-1', LIST_PRICES);
    await assert.rejects(like('no-run'), /There is no run "no-run" to compare with/);
    await assert.rejects(like('free'), /There is no cost per token of run "free"/);
    await store.close();
  });
});
