import assert from 'node:assert/strict';
import {execFileSync, spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {notifyKeyFile} from '../../cli/local/local-deployment.ts';
import {answers} from '../../client/json/index.ts';
import type {Comparison} from '../../client/views/comparison.ts';
import {signedHeaders} from '../../shared/contracts/settings/webhook.ts';
import {WebhookServer} from '../support/fakes/webhook-server.ts';
import {gleaner} from '../support/machine/command.ts';
import {TestHome, texts} from '../support/machine/home.ts';
import {GLEANER} from '../support/machine/process.ts';
import {until} from '../support/machine/until.ts';

const SPEC = ['--layers', '0-1', '--sites', 'resid_post'];

type Sent = {done: string};
type Estimate = {
  program: object | null;
  warnings: string[];
  streams: number;
  layers: number;
  usd: {spot: {estimate: number}};
};
type Started = {cloud?: string; run: string; status: string; streams: number; rejected: string[]};

/** Variables of a stopped cloud that `eval "$(gleaner local env)"` left in a shell. */
const STALE = {
  STORAGE_EMULATOR_HOST: 'http://127.0.0.1:9',
  PUBSUB_EMULATOR_HOST: '127.0.0.1:9',
  GLEANER_CLOUD: '/nonexistent/.gleaner/local',
};

describe('The commands about runs, in a shell that points at another local cloud', () => {
  let home: TestHome;
  let streams: string;
  let receiver: WebhookServer;
  const run = (verb: string, ...args: string[]) => gleaner(['run', verb, ...args, '--dir', home.dir]);
  /** The answer of --json of a command with this exit code, checked with the schema of the command. */
  const answerOf = async <T>(verb: string, args: string[], code = 0): Promise<T> => {
    const ended = await run(verb, ...args, '--json');
    assert.equal(ended.code, code, `run ${verb} ${args.join(' ')}: ${ended.stdout}${ended.stderr}`);
    return answers[`run ${verb}`]?.parse(JSON.parse(ended.stdout)) as T;
  };
  const done = async (verb: string, ...args: string[]) => (await answerOf<Sent>(verb, args)).done;
  const refused = async (pattern: RegExp, verb: string, ...args: string[]) => {
    const {code, stderr} = await run(verb, ...args);
    assert.equal(code, 1, stderr);
    assert.match(stderr, pattern);
  };
  const document = (name: string) => home.read(store => store.get(`runs/${name}`));

  before(async () => {
    receiver = await WebhookServer.start();
    home = await TestHome.start(1, STALE, ['--notify', `${receiver.origin}/hook`]);
    streams = mkdtempSync(join(tmpdir(), 'gleaner-runs-'));
    for (const stream of ['000', '001'])
      writeFileSync(join(streams, `stream_${stream}.jsonl`), texts(6, `s${stream}`));
  });
  after(async () => {
    await home?.remove();
    await receiver?.close();
    rmSync(streams, {recursive: true, force: true});
  });

  it('find their own local cloud with the bundle and the model in its bucket', async () => {
    assert.ok(await home.objects.head('models/tiny/config.json'));
    assert.equal((await home.objects.list('bundles/')).length, 1);
  });

  it('reach the local cloud that --port names', async () => {
    const {port} = new URL(home.ready.url);
    const {code, stderr} = await gleaner(['rebuild', '--dry-run', '--port', port], {env: STALE});
    assert.equal(code, 0, stderr);
  });

  it('name an unknown run in JSON with --json', async () => {
    const {code, stdout} = await gleaner(['status', 'nope', '--json', '--dir', home.dir]);
    assert.equal(code, 1);
    assert.match(JSON.parse(stdout).error, /There is no run "nope"/);
  });

  it('name an unknown TPU of a fault in one line', async () => {
    const {code, stderr} = await gleaner(['local', 'fault', 'preempt', 'nope', '--dir', home.dir]);
    assert.equal(code, 1);
    assert.match(stderr, /^cloud: local, .*\ngleaner: Unknown TPU "nope".*fault help.*\n$/);
  });

  it('print no control character of a hostile model name', async () => {
    await home.drop('datasets/hostile/run.json', '{"model":"\\u001b]0;PWN\\u0007\\u009b2J\\u202e"}');
    await home.drop('datasets/hostile/stream_000.jsonl', '{"text":"a"}\n');
    // A forged manifest contains control characters too.
    await home.drop('activations/hostile/manifest.json', '{"schema":"\\u001b[31m\u009b\u202e"}');
    for (const args of [['status'], ['status', 'hostile'], ['verify', 'hostile']]) {
      const {stdout, stderr} = await gleaner([...args, '--dir', home.dir]);
      assert.doesNotMatch(stdout + stderr, /[^\P{Cc}\n]|\p{Cf}/u, args.join(' '));
      assert.doesNotMatch(stderr, /\n\s+at /, args.join(' '));
    }
  });

  it('estimate a folder with the options of a start, and with a share of the peak where the compiler lacks the type', async () => {
    const quick = await answerOf<Estimate>('estimate', [streams, ...SPEC, '--shard-size', '5MB']);
    assert.deepEqual([quick.program, quick.streams, quick.layers], [null, 2, 2]);
    assert.match(quick.warnings.join(), /time and dollars are those of a real v5litepod-1 until a run/);
    const file = join(streams, 'stream_000.jsonl');
    const other = await answerOf<Estimate>('estimate', [file, '--compile', '--accelerator', 'v4-8']);
    assert.equal(other.program, null);
    assert.match(other.warnings.join(), /pass one of v5litepod-1,.*a share of the peak is assumed/);
  });

  it('estimate no time where no line becomes a sample, and say why', async () => {
    const file = join(home.dir, 'blank.jsonl');
    writeFileSync(file, '\n\n{"words": 1}\n');
    const {code, stdout, stderr} = await run('estimate', file);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /2 in all, such as: is empty\n/);
    assert.match(stdout, /time +none: no line becomes a sample/);
    assert.doesNotMatch(stdout, /time +unknown/);
    await refused(/there is no stream/, 'estimate', 'no-run');
  });

  it('refuse a wrong spec before anything is written', async () => {
    await refused(/tokens: expected "all"/, 'start', 'no', '--tokens', 'banana', '--streams', streams);
    await refused(/There is no stream in /, 'start', 'no', '--streams', join(home.dir, 'vms'));
    assert.deepEqual(await home.objects.list('datasets/no/'), []);
  });

  it('print commands that a shell passes to gcloud word for word', async () => {
    const quote = "it's {{ text }}";
    const args = ['no', '--template', quote, '--streams', streams, '--dry-run'];
    const {commands} = await answerOf<{commands: string[]}>('start', args);
    const shell = `gcloud() { printf '%s\\n' "$@"; [ "$4" = - ] && cat; return 0; }\n${commands.join('\n')}`;
    const seen = execFileSync('bash', ['-ec', shell], {encoding: 'utf8'});
    assert.ok(seen.includes(JSON.stringify({record: {template: quote}})), seen);
    assert.ok(seen.includes(`${streams}/stream_001.jsonl\n`), seen);
    assert.deepEqual(await home.objects.list('datasets/no/'), []);
  });

  it('start a run from a folder, also after Ctrl-C', async () => {
    const args = ['run', 'start', 'ka', '--streams', streams, ...SPEC, '--dir', home.dir];
    const child = spawn(process.execPath, [GLEANER, ...args], {stdio: ['ignore', 'ignore', 'pipe']});
    let said = '';
    child.stderr.on('data', chunk => {
      said += chunk;
      // A second signal would end the command at once.
      if (!child.killed && said.includes('run.json is written')) child.kill('SIGINT');
    });
    const [code] = await once(child, 'close');
    assert.equal(code, 130, said);
    const started = await answerOf<Started>('start', ['ka', '--streams', streams, ...SPEC, '--no-check']);
    const {cloud, ...others} = started;
    assert.equal(cloud, `local, ${home.dir}`);
    assert.deepEqual(others, {run: 'ka', status: 'active', streams: 2, rejected: [], estimate: null});
  });

  it('pause, change and continue a run', async () => {
    assert.match(await done('pause', 'ka'), /paus/);
    const [cancelled, configured] = await Promise.all([
      done('cancel', 'ka', '--stream', '1'),
      done('configure', 'ka', '--priority', '5', '--budget-usd', '20'),
    ]);
    assert.match(`${cancelled}; ${configured}`, /001.*; .*priority/);
    const changed = await document('ka');
    assert.deepEqual([changed?.status, changed?.priority, changed?.budget_usd], ['paused', 5, 20]);
    const [retried] = await Promise.all([
      done('retry', 'ka', '--stream', '001'),
      refused(/version/, 'configure', 'ka', '--priority', '6', '--if-version', '9999'),
    ]);
    assert.match(retried, /001/);
    assert.match(await done('resume', 'ka'), /./);
    assert.equal((await document('ka'))?.status, 'active');
  });

  it('refuse an unknown run with names like it, and another spec with its keys', async () => {
    const similar = /no run.*did you mean "ka"/;
    await Promise.all([refused(similar, 'pause', 'kx'), refused(similar, 'stop', 'kx', '--yes')]);
    await Promise.all([
      refused(similar, 'compare', 'kx', 'ka'),
      // The run has the budget that `configure` gave it.
      refused(
        /budget \$20\.00[\s\S]*layers: "0-1" there, \[2\] here/,
        'start',
        'ka',
        '--layers',
        '2',
        '--sites',
        'resid_post',
      ),
    ]);
    assert.equal((await run('cancel', 'ka')).code, 2);
  });

  it('stop a run after a question, and for good', async () => {
    // Stream 001 is for a second TPU, which this cloud does not have: the run cannot end by itself.
    const start = ['kc', '--streams', streams, ...SPEC, '--affinity', 'fixed', '--no-check'];
    await answerOf('start', start);
    await refused(/for good[\s\S]*[12] streams?[\s\S]*Stored shards stay[\s\S]*add --yes/, 'stop', 'kc');
    assert.equal((await document('kc'))?.status, 'active');
    assert.match(await done('stop', 'kc', '--yes'), /./);
    assert.equal((await document('kc'))?.status, 'stopped');
    await refused(/was stopped/, 'start', ...start);
  });

  it('say that two runs over the same streams hold the same, and name what differs', async () => {
    const one = join(home.dir, 'one');
    mkdirSync(one);
    writeFileSync(join(one, 'stream_000.jsonl'), texts(5, 's000'));
    await Promise.all([
      answerOf('start', ['kd', '--streams', one, ...SPEC, '--no-check']),
      answerOf('start', ['kb', '--from', 'ka', '--seed', '7', '--no-check']),
    ]);
    await Promise.all([home.runEnds('ka'), home.runEnds('kb'), home.runEnds('kd')]);
    const same = await answerOf<Comparison>('compare', ['ka', 'kb']);
    assert.deepEqual([same.same, same.spec.map(({name}) => name), same.statistics], [true, ['seed'], []]);
    const other = await answerOf<Comparison>('compare', ['ka', 'kd'], 1);
    assert.deepEqual(other.totals[2], {name: 'samples', a: 12, b: 5});
    assert.ok(other.shards.only_a > 0);
    const again = await answerOf<Estimate>('estimate', ['ka', '--like', 'ka']);
    const bill = Number((await document('ka'))?.cost_usd);
    assert.ok(Math.abs(again.usd.spot.estimate / bill - 1) < 1e-6, `${again.usd.spot.estimate}, not ${bill}`);
    const unended = await answerOf<Comparison>('compare', ['ka', 'kc'], 1);
    assert.match(unended.notes[0] ?? '', /kc is stopped: only what is stored/);
  });

  it('tell a receiver of the pause and of each end, signed with the key of the cloud', async () => {
    const ends = ['ka', 'kb', 'kd'].map(name => `Run ${name} is completed`);
    const texts = () => receiver.asked.map(({body}) => JSON.parse(body).data.text);
    await until('the notifications', () => ends.every(text => texts().includes(text)));
    const told = texts().filter(text => !text.includes('hostile'));
    assert.deepEqual(told.sort(), [...ends, 'Run ka is paused'].sort());
    const key = readFileSync(notifyKeyFile(home.dir), 'utf8');
    for (const {headers, body} of receiver.asked) {
      const now = Number(headers['webhook-timestamp']) * 1000;
      const signed = signedHeaders(JSON.parse(body).id, body, key, now);
      for (const [name, value] of Object.entries(signed)) assert.equal(headers[name], value);
    }
    const {stdout} = await gleaner(['doctor', '--dir', home.dir]);
    assert.match(stdout, /ok +notifications +the last one was accepted at/);
  });

  it('write a run, and two runs beside each other, as files that load nothing', async () => {
    const [report, compared] = [join(streams, 'ka.html'), join(streams, 'ka-kb.html')];
    const written = await answerOf<{file: string; size_bytes: number}>('report', ['ka', '-o', report]);
    assert.deepEqual(written, {file: report, size_bytes: statSync(report).size});
    await answerOf('compare', ['ka', 'kb', '--html', compared]);
    for (const file of [report, compared]) assert.match(readFileSync(file, 'utf8'), /default-src 'none'/);
  });
});
