import assert from 'node:assert/strict';
import {copyStreams, requireFrozen} from '../../../cli/run/spec/from-run.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {running} from '../../../client/connection/connect.ts';
import {setQuiet} from '../../../client/text/output.ts';
import {manifestText} from '../../../shared/contracts/spec/manifest.ts';
import {completeSpec, specHash} from '../../../shared/contracts/spec/spec.ts';
import {openObjects} from '../../../shared/google/objects.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {aConfig} from '../../world/builders.ts';

describe('A run from another run', () => {
  const scratch = new Scratch(after);
  let cloud: Cloud;
  before(async () => {
    setQuiet(true);
    const local = await scratch.cloud();
    const {project, bucket, url: endpoint, token} = local;
    const objects = openObjects({project, bucket, endpoint, token});
    cloud = {connection: running(local), objects} as unknown as Cloud;
    for (const name of ['stream_000.jsonl', 'stream_001.jsonl.gz', 'run.json'])
      await objects.create(`datasets/first/${name}`, Buffer.from(name));
  });
  after(() => setQuiet(false));

  it('a run from another run has the frozen spec and placement, and a run that never began is named', async () => {
    const {spec, placement} = completeSpec({layers: '0-99', budget_usd: 5}, aConfig());
    const manifest = manifestText({run: 'first', spec, spec_hash: specHash(spec), placement});
    await cloud.objects.create('activations/first/manifest.json', Buffer.from(manifest));
    const {layers, budget_usd, pool} = await requireFrozen(cloud, 'first');
    assert.deepEqual([layers, budget_usd, pool], ['0-99', 5, 'tpu']);
    await assert.rejects(requireFrozen(cloud, 'never'), /Run never has no frozen spec/);
  });

  it('a run from another run has a copy of each stream, also after an interrupted copy, and replaces no other content', async () => {
    await cloud.objects.create('datasets/second/stream_000.jsonl', Buffer.from('stream_000.jsonl'));
    assert.deepEqual(await copyStreams(cloud, 'first', 'second'), ['000', '001']);
    const copied = (await cloud.objects.list('datasets/second/')).map(({name}) => name);
    assert.deepEqual(copied, ['datasets/second/stream_000.jsonl', 'datasets/second/stream_001.jsonl.gz']);
    const bytes = await cloud.objects.read('datasets/second/stream_001.jsonl.gz', {max_bytes: 100});
    assert.equal(String(bytes && Buffer.from(bytes)), 'stream_001.jsonl.gz');
    await cloud.objects.create('datasets/third/stream_001.jsonl.gz', Buffer.from('mine'));
    await assert.rejects(copyStreams(cloud, 'first', 'third'), /exists with other content/);
    await assert.rejects(copyStreams(cloud, 'absent', 'third'), /no stream of run absent/);
  });
});
