import assert from 'node:assert/strict';
import type {RunSpecInput} from '../../shared/contracts/spec/spec.ts';
import type {RunResult} from '../../shared/domain/run/result.ts';
import {gleaner} from '../support/machine/command.ts';
import {TestHome, texts} from '../support/machine/home.ts';

const lines = (count: number, line: (n: number) => object) =>
  Array.from({length: count}, (_, n) => `${JSON.stringify(line(n))}\n`).join('');
const grid = (n: number) => [
  [n % 10, 7],
  [7, 7],
];
const task = (n: number) => ({
  task_id: `task-${n}`,
  train: [{input: grid(n), output: grid(n + 1)}],
  test: [{input: grid(n + 2)}],
});

type Case = {
  run: string;
  spec: RunSpecInput;
  stream: string;
  samples: number;
  rejected?: number;
  file: RegExp;
  /** Rows of each tensor, where their number differs from the tokens. */
  rows?: number;
  tensors: string[];
};

const cases: Case[] = [
  {
    run: 'int8-last-zstd',
    spec: {
      ...{sites: ['resid_mid', 'mlp_out'], tokens: 'last', dtype: 'int8', layers: [0, 2]},
      ...{format: 'safetensors.zst', keep: ['task_id']},
      record: {encoder: 'RowNumberEncoder(MinimalGridEncoder())', predictions_per_task: 2},
    },
    stream: `${lines(20, task)}${JSON.stringify({text: 'no task'})}\n`,
    samples: 40,
    rejected: 2,
    rows: 40,
    file: /shard_0001\.safetensors\.zst$/,
    tensors: ['resid_mid.0', 'resid_mid.2', 'mlp_out.0', 'mlp_out.2'],
  },
  {
    run: 'pickled-means',
    spec: {
      format: 'pkl.gz',
      dtype: 'fp16',
      tokens: 'mean',
      layers: '0-1',
      record: {template: 'Q: {{ question }}'},
    },
    stream: `${lines(30, n => ({question: `how many are ${n}?`}))}${JSON.stringify({answer: 1})}\n`,
    samples: 30,
    rejected: 1,
    rows: 30,
    file: /shard_0001\.pkl\.gz$/,
    tensors: ['resid_post.0', 'resid_post.1'],
  },
  {
    run: 'chats',
    spec: {
      ...{layers: [1], tokens: 'last:turns', mask: 'assistant', dtype: 'fp32'},
      record: {field: 'talk', add_generation_prompt: true},
    },
    stream: lines(12, n => ({
      talk: [
        {role: 'user', content: `say ${n}`},
        {role: 'assistant', content: `${n}`},
      ],
    })),
    samples: 12,
    rows: 24,
    file: /shard_0001\.safetensors$/,
    tensors: ['resid_post.1'],
  },
];

/** Uploads a copy of the tiny model with a chat template. */
async function dropChattyModel({objects}: TestHome): Promise<void> {
  for (const {name} of await objects.list('models/tiny/')) {
    const bytes = (await objects.read(name, {max_bytes: 1e9})) ?? assert.fail(name);
    await objects.create(name.replace('tiny', 'chatty'), bytes);
  }
  const template = [
    '{% for message in messages %}<{{ message.role }}>{{ message.content }}',
    '{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}',
  ];
  await objects.create('models/chatty/chat_template.jinja', Buffer.from(template.join('\n')));
}

describe('A run on a local cloud with runs of every kind', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(1);
    await dropChattyModel(home);
  });
  after(() => home.remove());

  it('fails with the reason of an invalid spec, and starts with every stream after a valid spec', async () => {
    await home.drop('datasets/refused/run.json', '{"sites": ["resid_post", "logits"]}');
    await home.drop('datasets/refused/stream_000.jsonl', texts(5, 'r', 5));
    const refused = await home.until(
      'the run with an invalid spec',
      () => home.view('refused'),
      view => view?.run.status === 'failed',
    );
    assert.match(refused.run.reason ?? '', /sites\.1: .*resid_mid.*, but it is "logits"/);
    assert.deepEqual(refused.streams, []);
    const survey = await gleaner(['rebuild', 'refused', '--dry-run', '--dir', home.dir]);
    assert.deepEqual([survey.code, /1 waits/.test(survey.stdout)], [1, true], survey.stdout);
    assert.doesNotMatch(survey.stdout, /publish/, 'a rebuild cannot help');
    await home.objects.delete('datasets/refused/run.json');
    await home.drop('datasets/refused/run.json', '{"sites": ["resid_post"], "layers": [0]}');
    // The other runs share the VM: each boot of a VM takes seconds.
    await dropCases();
    await home.until(
      'the run with the valid spec',
      () => home.view('refused'),
      view => view?.run.status !== 'failed',
    );
    const view = await home.runEnds('refused');
    assert.equal(view?.run.status, 'completed');
    assert.equal((await home.verify('refused')).stored_once, 5);
  });

  async function dropCases(): Promise<void> {
    for (const {run, spec, stream} of cases) {
      const model = run === 'chats' ? {model: `gs://${home.ready.bucket}/models/chatty`} : {};
      await home.drop(`datasets/${run}/run.json`, JSON.stringify({...spec, ...model}));
      await home.drop(`datasets/${run}/stream_000.jsonl`, stream);
    }
  }

  for (const {run, samples, rejected = 0, rows, file, tensors} of cases)
    it(`is stored, verified and summarised in its manifest: ${run}`, async () => {
      const view = await home.runEnds(run);
      assert.equal(view?.run.status, 'completed', view?.run.reason ?? '');
      const report = await home.verify(run);
      assert.deepEqual(
        {ok: report.ok, once: report.stored_once, rejected: report.rejected, problems: report.problems},
        {ok: true, once: samples, rejected, problems: []},
        JSON.stringify(report.streams),
      );
      const names = (await home.objects.list(`activations/${run}/tpu_0/`)).map(({name}) => name);
      assert.ok(
        names.some(name => file.test(name)),
        names.join(),
      );
      assert.ok(await home.objects.head(`activations/${run}/model.json`));
      const bytes = await home.objects.read(`activations/${run}/manifest.json`, {max_bytes: 1e6});
      const {result, spec_hash}: {result: RunResult; spec_hash: string} = JSON.parse(
        String(Buffer.from(bytes ?? '')),
      );
      assert.equal(spec_hash, view.run.spec_hash);
      assert.deepEqual(
        [result.streams, result.samples, result.rejected, result.tokens, result.rows, result.unread],
        [1, samples, rejected, report.tokens, rows ?? report.tokens, {}],
      );
      assert.deepEqual(Object.keys(result.stats).sort(), [...tensors].sort());
      for (const {norm, max_abs, non_finite, int8_error} of Object.values(result.stats)) {
        assert.ok(norm > 0 && max_abs > 0 && non_finite === 0, JSON.stringify(result.stats));
        assert.equal(int8_error !== undefined, run === 'int8-last-zstd');
        assert.ok((int8_error ?? 0.001) > 0 && (int8_error ?? 0) < 0.02, `int8_error ${int8_error}`);
      }
      assert.match(result.model?.weights_sha256 ?? '', /^[0-9a-f]{64}$/);
      assert.ok(result.versions.jax?.length === 1 && result.code.length === 1, JSON.stringify(result));
    });
});
