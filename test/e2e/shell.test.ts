import assert from 'node:assert/strict';
import {gleaner, TestHome} from './home.ts';

/** Variables of a stopped cloud that `eval "$(gleaner local env)"` left in a shell. */
const STALE = {
  STORAGE_EMULATOR_HOST: 'http://127.0.0.1:9',
  PUBSUB_EMULATOR_HOST: '127.0.0.1:9',
  GLEANER_LOCAL_URL: 'http://127.0.0.1:9',
};

describe('The gleaner command in a shell that points at another local cloud', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(1, STALE);
  });
  after(() => home?.remove());

  it('starts its own local cloud with the bundle and the model in its bucket', async () => {
    assert.ok(await home.objects.head('models/tiny/config.json'));
    assert.equal((await home.objects.list('bundles/')).length, 1);
  });

  it('reaches the local cloud that --port names', async () => {
    const {port} = new URL(home.ready.url);
    const {code, stderr} = await gleaner(['rebuild', '--dry-run', '--port', port], {env: STALE});
    assert.equal(code, 0, stderr);
  });

  it('names an unknown run in JSON with --json', async () => {
    const {code, stdout} = await gleaner(['status', 'nope', '--json', '--dir', home.dir]);
    assert.equal(code, 1);
    assert.match(JSON.parse(stdout).error, /There is no run "nope"/);
  });

  it('names an unknown TPU of a fault in one line', async () => {
    const {code, stderr} = await gleaner(['local', 'fault', 'preempt', 'nope', '--dir', home.dir]);
    assert.equal(code, 1);
    assert.match(stderr, /^gleaner: Unknown TPU "nope".*fault help.*\n$/);
  });

  it('prints no control character of a hostile model name', async () => {
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
});
