import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {createServer} from 'node:http';
import {answers} from '../../../../client/json/index.ts';
import {gleaner} from '../../../support/machine/command.ts';
import {Folder} from '../../../support/machine/folder.ts';
import {listen} from '../../../support/machine/listen.ts';
import {GLEANER} from '../../../support/machine/process.ts';

describe('gleaner streams create @full', () => {
  const folder = new Folder(afterEach);
  beforeEach(() => folder.put('qa.csv', 'q,a\nwhy,so\n'));

  it('gleaner streams create reads \\n of a template as a newline, and answers in JSON', async () => {
    const more = ['--num-streams', '1', '--output-dir', 'out', '--json'];
    const args = ['streams', 'create', 'qa.csv', '--template', 'Q: {q}\\nA: {a}', ...more];
    const {code, stdout} = await gleaner(args, {cwd: folder.path});
    assert.equal(code, 0);
    assert.deepEqual(folder.streams('out'), ['{"text":"Q: why\\nA: so"}\n']);
    assert.equal(JSON.parse(stdout).samples, 1);
    assert.ok(answers['streams create']?.safeParse(JSON.parse(stdout)).success);
  });

  for (const {args, says} of [
    {args: ['--num-streams', '1'], says: /missing required argument 'source'/},
    {args: ['qa.csv'], says: /required option '--num-streams <n>'/},
    {args: ['qa.csv', '--num-streams', '0'], says: /a whole number from 1/},
    {args: ['qa.csv', '--num-streams', '1', '--num-stream', '2'], says: /Did you mean --num-streams\?/},
    {
      args: ['qa.csv', '--num-streams', '1', '--column', 'q', '--template', '{q}'],
      says: /cannot be used with/,
    },
    {args: ['qa.csv', '--num-streams', '1', '--as', 'arc', '--template', '{q}'], says: /cannot be used with/},
    {args: ['qa.csv', '--num-streams', '1', '--format', 'xml'], says: /Allowed choices are jsonl, json/},
  ])
    it(`gleaner streams create exits with 2 for the arguments "${args.join(' ')}"`, async () => {
      const {code, stderr} = await gleaner(['streams', 'create', ...args], {cwd: folder.path});
      assert.equal(code, 2);
      assert.match(stderr, says);
    });

  it('gleaner streams create exits with 130 at once after Ctrl-C, also when a hub does not answer', async () => {
    const hub = createServer(() => {});
    const HF_ENDPOINT = `http://${await listen(hub)}`;
    const asked = once(hub, 'request');
    const child = spawn(process.execPath, [GLEANER, 'streams', 'create', 'org/data', '--num-streams', '1'], {
      env: {...process.env, HF_ENDPOINT},
      cwd: folder.path,
      stdio: 'ignore',
    });
    const ended = once(child, 'exit');
    await asked;
    child.kill('SIGINT');
    assert.deepEqual(await ended, [130, null]);
    hub.closeAllConnections();
    hub.close();
  });
});
