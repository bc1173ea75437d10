import assert from 'node:assert/strict';
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
    await assert.rejects(find('.'), /There is no file \., which is a folder: name a JSONL file/);
    const spec = folder.put('bad.json', '{"modle": 1}');
    await assert.rejects(find('x', spec), /there is no modle/);
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
