import assert from 'node:assert/strict';
import {mirrorModel} from '../../../cli/models/mirror.ts';
import {running} from '../../../client/connection/connect.ts';
import {CliError} from '../../../client/text/errors.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {specObject} from '../../../shared/domain/names.ts';
import {openObjects} from '../../../shared/google/objects.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';
import {COMMIT, FakeHub} from './streams/a-hub.ts';

const text = (content: string) => new TextEncoder().encode(content);
const weights = (byte: number) => new Uint8Array(100_000).fill(byte);

const FILES = {
  'config.json': text('{"model_type": "llama"}'),
  'tokenizer.json': text(`{"model": "${'x'.repeat(100)}"}`),
  'additional_chat_templates/tool_use.jinja': text('{{ tools }}'),
  'model-00001-of-00002.safetensors': weights(1),
  'model-00002-of-00002.safetensors': weights(2),
  'model.safetensors.index.json': text('{}'),
  LICENSE: text('Apache-2.0'),
  'README.md': text(''),
  'pytorch_model.bin': weights(3),
  'modeling_custom.py': text('print(1)'),
  'onnx/model.safetensors': weights(4),
};
const COPIED = Object.keys(FILES)
  .filter(name => !/bin|py|onnx/.test(name))
  .sort();

describe('gleaner models mirror', () => {
  const scratch = new Scratch(after);
  const folder = new Folder(after);
  let cloud: LocalCloud;
  let hub: FakeHub;
  let prefix: string;
  before(async () => {
    cloud = await scratch.cloud();
  });
  let commits = 0;
  beforeEach(async () => {
    // Each test has a commit, and with it a copy, of its own.
    const commit = COMMIT.replace(/^a/, String(++commits));
    prefix = `models/org/model@${commit}/`;
    hub = await FakeHub.start({main: {commit, files: {...FILES}}});
  });
  afterEach(() => hub.end());

  const objects = () => {
    const {project, bucket, url: endpoint, token} = cloud;
    return openObjects({project, bucket, endpoint, token});
  };
  const mirror = (revision?: string, path?: string[]) =>
    mirrorModel({connection: running(cloud), objects: objects()}, 'org/model', {
      ...{revision, path},
      say: () => {},
      stop: new AbortController().signal,
      hub: hub.client(undefined, 'model'),
    });
  const stored = async () =>
    (await objects().list(prefix)).map(({name}) => name.slice(prefix.length)).toSorted();
  const reads = () => hub.requests.filter(({url}) => url.includes('/resolve/'));

  it('gleaner models mirror copies the files that a worker reads and the licence, at one commit, and nothing else', async () => {
    const report = await mirror();
    const address = `gs://${cloud.bucket}/${prefix.slice(0, -1)}`;
    assert.deepEqual(
      [report.address, report.files, report.bytes === report.copied_bytes],
      [address, 8, true],
    );
    assert.deepEqual(await stored(), [...COPIED, 'gleaner-model.json'].toSorted());
    for (const name of COPIED) {
      const bytes = await objects().read(`${prefix}${name}`, {max_bytes: 1 << 20});
      assert.deepEqual(new Uint8Array(bytes ?? []), FILES[name as keyof typeof FILES], name);
    }
    const complete = await objects().read(`${prefix}gleaner-model.json`, {max_bytes: 1 << 20});
    const {files} = JSON.parse(Buffer.from(complete ?? '').toString('utf8'));
    assert.deepEqual(Object.keys(files).toSorted(), COPIED);
  });

  it('gleaner models mirror copies nothing again, except an object that is lost', async () => {
    await mirror();
    const before = reads().length;
    assert.equal((await mirror()).copied_bytes, 0);
    assert.equal(reads().length, before);
    await objects().delete(`${prefix}model-00002-of-00002.safetensors`);
    assert.equal((await mirror()).copied_bytes, 100_000);
    assert.deepEqual(await stored(), [...COPIED, 'gleaner-model.json'].toSorted());
  });

  it('gleaner models mirror is not complete where an object has other bytes of the same size', async () => {
    await mirror();
    const name = `${prefix}model-00002-of-00002.safetensors`;
    await objects().delete(name);
    await objects().create(name, weights(9));
    await assert.rejects(mirror(), /00002\.safetensors has other content than the file of the hub: delete/);
  });

  it('gleaner models mirror goes on after a failure with the file that is missing', async () => {
    const lost = 'model.safetensors.index.json';
    hub.missing.add(lost);
    await assert.rejects(mirror(), /Failed to read model\.safetensors\.index\.json/);
    assert.ok(!(await stored()).includes('gleaner-model.json'), 'the copy is not complete');
    hub.missing.clear();
    const before = reads().length;
    assert.equal((await mirror()).copied_bytes, FILES[lost].length + FILES['tokenizer.json'].length);
    assert.equal(reads().length, before + 2);
  });

  for (const name of ['tokenizer.json', 'model-00001-of-00002.safetensors'] as const)
    it(`gleaner models mirror refuses ${name} with other bytes than the hub states`, async () => {
      hub.damaged.add(name);
      await assert.rejects(mirror(), new CliError(`Failed to copy ${name}: it arrived damaged; try again`));
      assert.ok(!(await stored()).includes(name));
      hub.damaged.clear();
      await mirror();
      assert.ok((await stored()).includes('gleaner-model.json'));
    });

  it('gleaner models mirror refuses a model without a file that a worker needs, and an unknown revision', async () => {
    await assert.rejects(mirror('v9'), /There is no revision v9 of a model org\/model/);
    const {'tokenizer.json': _, ...files} = FILES;
    hub.revisions.main = {commit: COMMIT, files};
    await assert.rejects(mirror(), /org\/model at main: org\/model has no tokenizer\.json: make it/);
  });

  it('gleaner models mirror with --path copies the matching files of SAEs, of a repository without a model', async () => {
    const names = ['a/layer_0_l0/cfg.json', 'a/layer_0_l0/w.safetensors', 'a/layer_1_l0/w.safetensors'];
    const others = ['a/layer_0_l0/more/w.safetensors', 'a/layer_0_l1/w.safetensors', 'a/layer_0_l1/w.npz'];
    const files = Object.fromEntries([...names, ...others].map(name => [name, text(name)]));
    const commit = prefix.slice(-41, -1);
    hub.revisions.main = {commit, files};
    await assert.rejects(mirror(), /no config\.json: .*--path/);
    const patterns = ['a/layer_*_l0/*', 'a/layer_0_l0/cfg.json'];
    const report = await mirror('main', patterns);
    assert.deepEqual([report.address, report.files], [`gs://${cloud.bucket}/${prefix.slice(0, -1)}`, 3]);
    assert.deepEqual(
      (await stored()).filter(name => !name.startsWith('gleaner-')),
      names,
    );
    const before = reads().length;
    assert.equal((await mirror('main', patterns)).copied_bytes, 0);
    assert.equal(reads().length, before);
    assert.equal((await mirror('main', ['a/layer_0_l1/*'])).files, 1);
    assert.equal((await mirror('main', ['a/layer_*_l0/**'])).files, 4);
    for (const none of ['a/layer.0_l0/*', 'a/layer_0_l1/w.npz', 'a/*'])
      await assert.rejects(mirror('main', [none]), /no \.json and no \.safetensors matches --path a\//);
  });

  it('gleaner models mirror comes before a run that is started with --mirror', async () => {
    const cfg = {'saes/l0/cfg.json': text('{}'), 'saes/l0/x/w.safetensors': text('')};
    Object.assign(hub.revisions.main?.files ?? {}, cfg);
    const features = [{name: 'scope', weights: 'org/model', path: 'saes/l{layer}'}];
    const file = folder.put('mirrored.json', JSON.stringify({model: 'org/model', layers: [0], features}));
    const args = ['run', 'start', 'mirrored', '--spec', file, '--mirror'];
    const env = {HF_ENDPOINT: hub.url};
    const {code, stderr} = await gleaner([...args, '--port', new URL(cloud.url).port], {env});
    assert.equal(code, 0, stderr);
    const spec = await objects().read(specObject('mirrored'), {max_bytes: 1 << 20});
    const {model, features: copied} = JSON.parse(Buffer.from(spec ?? '').toString('utf8'));
    assert.equal(model, `gs://${cloud.bucket}/${prefix.slice(0, -1)}`);
    assert.deepEqual(copied, [{...features[0], weights: model}]);
    for (const name of ['gleaner-model.json', ...Object.keys(cfg)])
      assert.ok((await stored()).includes(name));
  });
});
