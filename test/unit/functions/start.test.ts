import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {loadConfig} from '../../../shared/contracts/settings/config.ts';
import {requireVerifier} from '../../../shared/google/callers.ts';
import {Folder} from '../../support/machine/folder.ts';
import {ROOT} from '../../support/machine/process.ts';
import {ENVIRONMENT} from '../../world/builders.ts';

const INDEX = `${ROOT}functions/index.ts`;
const FRAMEWORK = `${ROOT}node_modules/.bin/functions-framework`;
const {PATH = ''} = process.env;
/** The settings of worker-api on Google. */
const GOOGLE = {...ENVIRONMENT, PATH, GLEANER_STORE: 'firestore:gleaner', FUNCTION_TARGET: 'worker-api'};
const VERIFIER: readonly string[] = [
  'GLEANER_WORKER_SERVICE_ACCOUNT',
  'GLEANER_CONTROL_SERVICE_ACCOUNT',
  'GLEANER_TICKET_KEY',
  'GLEANER_WORKER_API',
];

type Ended = {code: unknown; output: string};

function run(file: string, args: string[], env: Record<string, string>): Promise<Ended> {
  return new Promise(resolve => {
    execFile(file, args, {env, timeout: 30_000}, (error, stdout, stderr) =>
      resolve({code: error ? error.code : 0, output: stdout + stderr}),
    );
  });
}

/** Loads the functions, as the framework does at its start. */
const load = (env: Record<string, string>) => run(process.execPath, ['--import', INDEX, '-e', ''], env);

describe('the start of a function on Google @full', () => {
  const source = new Folder();
  before(() => {
    source.put('package.json', '{"type": "module", "main": "index.js"}');
    source.put('index.js', `import ${JSON.stringify(INDEX)};\n`);
  });
  after(() => source.end());

  it('succeeds for worker-api with the settings that prove its callers', async () => {
    assert.deepEqual(await load(GOOGLE), {code: 0, output: ''});
  });

  for (const name of VERIFIER)
    it(`fails for worker-api without ${name}, and names the variable`, () => {
      const {[name]: _, ...bare}: Record<string, string> = GOOGLE;
      const isNamed = ({name: kind, message}: Error) => kind === 'ConfigError' && message.includes(name);
      assert.throws(() => requireVerifier(loadConfig(bare)), isNamed);
    });

  it(`succeeds for on-object without ${VERIFIER.join(', ')}`, async () => {
    const bare = Object.fromEntries(Object.entries(GOOGLE).filter(([name]) => !VERIFIER.includes(name)));
    assert.deepEqual(await load({...bare, FUNCTION_TARGET: 'on-object'}), {code: 0, output: ''});
  });

  it('ends the process of the framework where worker-api cannot prove its callers', async () => {
    const {GLEANER_WORKER_SERVICE_ACCOUNT: _, ...bare} = GOOGLE;
    const {code, output} = await run(process.execPath, [FRAMEWORK, `--source=${source.path}`], bare);
    assert.equal(code, 1, output);
    assert.match(
      output,
      /Failed to start worker-api\. Set these variables:\n *GLEANER_WORKER_SERVICE_ACCOUNT/,
    );
  });
});
