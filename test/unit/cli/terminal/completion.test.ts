/** Completion of the command line, as shells ask for it. */
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {existsSync, symlinkSync} from 'node:fs';
import {join} from 'node:path';
import {gleaner} from '../../../support/machine/command.ts';
import {Folder} from '../../../support/machine/folder.ts';
import {ROOT} from '../../../support/machine/process.ts';

/** Of Debian's package bash-completion. */
const BASH_COMPLETION = '/usr/share/bash-completion/bash_completion';

async function suggestions(...words: string[]): Promise<string[]> {
  const {stdout, code} = await gleaner(['complete', '--', ...words]);
  assert.equal(code, 0);
  const lines = stdout.trimEnd().split('\n');
  return lines.slice(0, -1).map(line => line.split('\t')[0] ?? '');
}

describe('Completion @full', () => {
  const folder = new Folder(after);
  for (const {title, words, has, lacks} of [
    {title: 'commands', words: ['sta'], has: ['status'], lacks: ['jobs', 'complete']},
    {title: 'subcommands', words: ['jobs', ''], has: ['submit', 'list'], lacks: ['status']},
    {title: 'options', words: ['jobs', 'list', '--s'], has: ['--status'], lacks: ['--limit']},
    {
      title: 'values of an option',
      words: ['jobs', 'list', '--status', ''],
      has: ['running'],
      lacks: ['--limit'],
    },
  ])
    it(`Completion suggests ${title}`, async () => {
      const found = await suggestions(...words);
      for (const word of has) assert.ok(found.includes(word), `${word} is not in ${found}`);
      for (const word of lacks) assert.ok(!found.includes(word), `${word} is in ${found}`);
    });

  for (const [shell, mark] of [
    ['bash', 'complete -F'],
    ['zsh', '#compdef gleaner'],
    ['fish', 'complete -c gleaner'],
  ] as const)
    it(`Completion prints a script for ${shell}`, async () => {
      const {stdout, code} = await gleaner(['completion', shell]);
      assert.equal(code, 0);
      assert.ok(stdout.includes(mark), stdout.slice(0, 500));
    });

  it('Completion refuses another shell', async () => {
    const {stderr, code} = await gleaner(['completion', 'tcsh']);
    assert.equal(code, 2);
    assert.match(stderr, /Allowed choices are bash, zsh, fish/);
  });

  it('Completion completes a command line in bash', function () {
    if (!existsSync(BASH_COMPLETION)) {
      if (process.env.CI) throw new Error('bash-completion is missing, and CI needs it');
      return this.skip();
    }
    const session = folder.put(
      'session.sh',
      `source ${BASH_COMPLETION}
source <(gleaner completion bash)
COMP_LINE='gleaner jobs li'; COMP_POINT=\${#COMP_LINE}; COMP_WORDS=(gleaner jobs li); COMP_CWORD=2
__gleaner_complete
printf '%s\\n' "\${COMPREPLY[@]}"
`,
    );
    symlinkSync(join(ROOT, 'cli/gleaner.mjs'), folder.at('gleaner'));
    const env = {...process.env, PATH: `${folder.path}:${process.env.PATH}`};
    const {stdout, stderr} = spawnSync('bash', ['--norc', session], {encoding: 'utf8', env});
    assert.equal(stdout, 'list\n', stderr);
  });
});
