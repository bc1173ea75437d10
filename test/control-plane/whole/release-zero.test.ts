/**
 * `test/fixtures/release-zero.json` is what release zero has written: documents, messages under way, nodes, a manifest, metadata and shards. It is
 * never written again after a release: each later release must still read it and continue the work in it. A change that fails this test loses
 * the state of users. Before release zero is out, `GLEANER_WRITE_RELEASE_ZERO=1` writes the file from the present code.
 */
import assert from 'node:assert/strict';
import {readFileSync, writeFileSync} from 'node:fs';
import {schemaAt} from '../../../client/json/stored-schemas.ts';
import {manifest, streamMetadata} from '../../../shared/contracts/spec/manifest.ts';
import {paths} from '../../../shared/domain/names.ts';
import {runResult} from '../../../shared/domain/run/result.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {aBusyWorld, everyDocument, finishBusyWorld} from '../../world/scenes/busy-world.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const FILE = new URL('../../fixtures/release-zero.json', import.meta.url);
const SET = {GLEANER_NOTIFY: 'json', GLEANER_WORKERS_PER_ZONE: '3'};

/** A busy world with a complete run, a job of two TPUs, and messages that no function has seen. */
async function aState() {
  const world = await aBusyWorld(SET, async world => {
    world.drop('done-run', 0, someLines(4, 'done', 1));
    await world.until('a complete run', async () => (await world.run('done-run'))?.status === 'completed');
    await world.writeJob('gang', {code: 'result = 1', status: 'pending', timeout: 86_400, slices: 2});
  });
  world.drop('my-run', 2, someLines(4, 'late'));
  world.control({action: 'resume', pool: 'fast'});
  world.exec({exec: 'e2', target: 'all', argv: ['hostname'], timeout_s: 3600});
  const bytesOf = (name: string) => Buffer.from(world.objects.bytes(name) ?? []);
  return {
    ...{now_ms: world.now, settings: world.settings, published: world.published.length},
    messages: world.queue,
    documents: Object.fromEntries((await everyDocument(world)).map(({path, data}) => [path, data])),
    objects: world.objects.list('').map(info => ({info, base64: bytesOf(info.name).toString('base64')})),
    nodes: [...world.tpus.nodes.values()].map(node => ({...node, from: null})),
  };
}

const write = async () => writeFileSync(FILE, `${JSON.stringify(await aState(), null, 2)}\n`);
const read = (): Awaited<ReturnType<typeof aState>> => JSON.parse(readFileSync(FILE, 'utf8'));
const textOf = ({base64}: {base64: string}) => Buffer.from(base64, 'base64').toString();

describe('The state that release zero has written', () => {
  if (process.env.GLEANER_WRITE_RELEASE_ZERO) before(write);

  it('is read whole: each document, a manifest and the metadata of a stream', () => {
    const {documents, objects} = read();
    const jsonOf = (name: string) =>
      JSON.parse(textOf(objects.find(({info}) => info.name === name) ?? assert.fail(name)));
    const [of_run, of_stream] = ['manifest.json', 'tpu_0/metadata.json'].map(each =>
      jsonOf(`activations/done-run/${each}`),
    );
    assert.partialDeepStrictEqual(manifest.extend({result: runResult}).parse(of_run), of_run);
    assert.partialDeepStrictEqual(streamMetadata.loose().parse(of_stream), of_stream);
    // A later release adds fields to a document, and changes and drops none. `prices/chips` has no schema.
    for (const [path, data] of Object.entries(documents))
      if (path !== paths.prices())
        assert.partialDeepStrictEqual(schemaAt(path)?.parse(data) as Document, data, path);
  });

  it('is continued: each sample is stored once, and the jobs end', async () => {
    const {now_ms, settings, documents, objects, nodes, published, messages} = read();
    const world = new World(settings);
    world.now = now_ms;
    await putDocuments(world.store, documents);
    for (const each of objects)
      world.objects.put(each.info.name, Buffer.from(each.base64, 'base64'), each.info.metadata, each.info);
    for (const node of nodes) world.tpus.nodes.set(node.name, node);
    world.queue.splice(0, world.queue.length, ...messages);
    world.published.length = published;
    await finishBusyWorld(world);
    for (const each of objects) {
      const [, stream] = /^datasets\/my-run\/stream_(\d+)/.exec(each.info.name) ?? [];
      if (stream !== undefined) await world.assertStoredOnce('my-run', stream, textOf(each));
    }
    await world.until('the end of the jobs', async () =>
      (await world.store.query('jobs')).every(({data}) => /completed|cancelled/.test(String(data.status))),
    );
    assert.deepEqual(
      world.logs.filter(({severity}) => severity === 'ERROR'),
      [],
    );
  });
});
