import assert from 'node:assert/strict';
import {jsonText} from '../../../shared/contracts/printable.ts';
import {gleaner} from '../../support/machine/command.ts';

describe('An invalid gleaner command @full', () => {
  it('an invalid gleaner command run cancel without a stream names the stop of the run', async () => {
    const {code, stderr} = await gleaner(['run', 'cancel', 'my-run']);
    assert.equal(code, 2);
    assert.match(stderr, /gleaner run stop my-run/);
  });

  for (const [args, says] of [
    [['status', 'NOPE'], /^command-argument value 'NOPE' is invalid for argument 'run'\. a run id is/],
    [['verify'], /^missing required argument 'run'$/],
    [['demo', '--speed'], /^unknown option '--speed'$/],
  ] as const)
    it(`an invalid gleaner command prints the error of "${args.join(' ')} --json" as JSON and exits with 2`, async () => {
      const {code, stdout, stderr} = await gleaner([...args, '--json']);
      assert.equal(code, 2);
      assert.match(JSON.parse(stdout).error, says);
      assert.match(stderr, /^error: .*\n\(add --help for the options\)\n$/);
    });

  it('an invalid gleaner command prints nothing on standard output without --json', async () => {
    const {code, stdout} = await gleaner(['status', 'NOPE']);
    assert.deepEqual([code, stdout], [2, '']);
  });

  const hostile = 'x\u001b]0;PWN\u0007\u009b2J\u202e';
  for (const args of [
    [hostile],
    ['verify', hostile],
    ['status', '--port', hostile],
    ['status', `--${hostile}`, '--json'],
  ])
    it(`an invalid gleaner command prints no control character of its arguments ${jsonText(args)}`, async () => {
      const {code, stdout, stderr} = await gleaner(args);
      assert.equal(code, 2);
      assert.doesNotMatch(stdout + stderr, /[^\P{Cc}\n]|\p{Cf}/u);
      assert.match(stderr, /^error: .*PWN.*\n\(add --help for the options\)\n$/);
    });

  for (const args of [
    ['demo', '--dir', ''],
    ['local', 'up', '--dir='],
  ])
    it(`an invalid gleaner command exits with 2 for an empty --dir of gleaner ${args[0]}`, async () => {
      // A command that accepts the folder fails later, without a Python environment.
      const {code, stderr} = await gleaner(args, {env: {XDG_CACHE_HOME: '/dev/null'}});
      assert.equal(code, 2);
      assert.match(stderr, /'--dir <folder>' argument '' is invalid\. a folder, such as \. for the current/);
    });
});
