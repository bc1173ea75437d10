import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {mkdirSync, realpathSync} from 'node:fs';
import {gleanerProgram, leavesOf} from '../../../cli/program.ts';
import {cloudName, cloudText, parseCloudName} from '../../../client/connection/cloud-name.ts';
import {googleConnection} from '../../../client/connection/google-connection.ts';
import {projectIn} from '../../../client/connection/settings-file.ts';
import {markFolder} from '../../../emulator/state/own-folder.ts';
import {gleaner} from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';
import {GLEANER} from '../../support/machine/process.ts';

describe('The cloud of a command', () => {
  const folder = new Folder(after);
  let home: string;
  let env: Record<string, string>;
  before(() => {
    home = realpathSync(folder.path);
    env = {HOME: home, XDG_CONFIG_HOME: `${home}/.config`, METADATA_SERVER_DETECTION: 'none'};
    for (const dir of ['laptop/.gleaner/local', 'both/.gleaner/local']) {
      mkdirSync(`${home}/${dir}`, {recursive: true});
      markFolder(`${home}/${dir}`);
    }
    mkdirSync(`${home}/laptop/deep/er`, {recursive: true});
    mkdirSync(`${home}/none`);
    folder.put('project/gleaner.tfvars.json', '{"project": "my-project-1", "jobs_collection": "work"}');
    folder.put('project/deep/file', '');
    folder.put('both/gleaner.tfvars.json', '{"project": "my-project-2", "name": "team-b"}');
  });

  /** What `gleaner config show` finds in a folder, or the error. */
  const found = async (cwd: string, args: string[] = [], more: Record<string, string> = {}) => {
    const ended = await gleaner(['config', 'show', '--json', ...args], {
      cwd: `${home}/${cwd}`,
      env: {...env, ...more},
    });
    const {settings = [], error} = JSON.parse(ended.stdout) as {
      settings?: {name: string; value: string}[];
      error?: string;
    };
    const value = (name: string) => settings.find(each => each.name === name)?.value;
    return error ?? [value('cloud'), value('bucket'), value('jobs')].join(', ');
  };
  const cloud = (verb: string, name: string, cwd: string) =>
    gleaner(['cloud', verb, name], {cwd: `${home}/${cwd}`, env});

  const rows: {name: string; cwd: string; args?: string[]; env?: Record<string, string>; then: RegExp}[] = [
    {
      name: 'is refused where no folder has one',
      cwd: 'none',
      then: /^No cloud is chosen here: .*local up.*cloud use/,
    },
    {
      name: 'is the local one of the folder',
      cwd: 'laptop',
      then: /There is no local cloud in ~\/laptop\/\.gleaner\/local/,
    },
    {
      name: 'is the local one of a folder above',
      cwd: 'laptop/deep/er',
      then: /in ~\/laptop\/\.gleaner\/local/,
    },
    {
      name: 'is no project that its user has not agreed to',
      cwd: 'project/deep',
      then: /~\/project\/gleaner\.tfvars\.json names project my-project-1, deployment gleaner, which .*`gleaner cloud use my-project-1\/gleaner` in ~\/project, .*--cloud my-project-1\/gleaner/,
    },
    {
      name: 'is refused where a folder has two',
      cwd: 'both',
      then: /~\/both has two clouds: local, ~\/both\/\.gleaner\/local; and project my-project-2, deployment team-b\. .*`gleaner cloud use local` or `gleaner cloud use my-project-2\/team-b`/,
    },
    {
      name: 'is the one that --cloud names, before all others',
      cwd: 'laptop',
      args: ['--cloud', 'other-project/team-c'],
      env: {GLEANER_CLOUD: 'my-project-9'},
      then: /^project other-project, deployment team-c, other-project-team-c, jobs$/,
    },
    {
      name: 'is the folder of --dir before GLEANER_CLOUD',
      cwd: 'none',
      args: ['--dir', '../laptop/.gleaner/local'],
      env: {GLEANER_CLOUD: 'my-project-9'},
      then: /in ~\/laptop/,
    },
    {
      name: 'is the one that GLEANER_CLOUD names before that of the folder',
      cwd: 'laptop',
      env: {GLEANER_CLOUD: 'my-project-9'},
      then: /^project my-project-9, /,
    },
    {
      name: 'has the jobs of the settings file that names it',
      cwd: 'project',
      args: ['--cloud', 'my-project-1'],
      then: /, my-project-1-gleaner, work$/,
    },
    {
      name: 'is no text that is no name',
      cwd: 'none',
      args: ['--cloud', 'My Project'],
      then: /"My Project" is not the name of a cloud/,
    },
  ];
  for (const {name, cwd, args, env: more, then} of rows)
    it(`the cloud of a command ${name}`, async () => assert.match(await found(cwd, args, more), then));

  it('the cloud of a command is the one that its user chose for the folder, until the folder offers another or the user forgets it', async () => {
    assert.match(
      (await cloud('use', 'my-project-1', 'project')).stdout,
      /^Commands in ~\/project use project my-project-1, /,
    );
    assert.match(await found('project/deep'), /^project my-project-1, deployment gleaner, .*, work$/);
    folder.put('project/gleaner.tfvars.json', '{"project": "strange-project"}');
    assert.match(await found('project'), /names project strange-project, .* which no command has used/);
    folder.put('project/gleaner.tfvars.json', '{"project": "my-project-1", "jobs_collection": "work"}');
    const {stdout} = await gleaner(['cloud', 'list', '--json'], {cwd: `${home}/project`, env});
    const {clouds} = JSON.parse(stdout) as {clouds: {name: string; current: boolean; folders: string[]}[]};
    const current = clouds.filter(each => each.current);
    assert.deepEqual(current, [
      {name: 'my-project-1/gleaner', state: 'Google Cloud', folders: [`${home}/project`], current: true},
    ]);
    assert.equal((await cloud('forget', 'my-project-1', 'none')).code, 0);
    assert.match(await found('project'), /which no command has used/);
    assert.match(
      (await cloud('forget', 'my-project-1', 'none')).stderr,
      /No folder uses project my-project-1/,
    );
  });

  it('the cloud of a command is the chosen one of two in a folder', async () => {
    await cloud('use', 'local', 'both');
    assert.match(await found('both'), /in ~\/both\/\.gleaner\/local/);
    await cloud('use', 'my-project-2/team-b', 'both');
    assert.match(await found('both'), /^project my-project-2, deployment team-b, my-project-2-team-b, /);
  });

  it('the cloud of a command is never one that its user does not have', async () => {
    assert.match(
      (await cloud('use', './nowhere', 'none')).stderr,
      /no local cloud of yours in ~\/none\/nowhere/,
    );
  });

  it('the cloud of a command has a name that the command reads again', () => {
    for (const name of ['my-project/gleaner', 'example.com:my-project/team-a', '/tmp/a b/.gleaner/local'])
      assert.equal(cloudName(parseCloudName(name)), name);
    assert.equal(cloudText(parseCloudName('my-project')), 'project my-project, deployment gleaner');
  });
});

/** Commands on a cloud that only read it. */
const READING = [
  ...['run watch', 'run list', 'run compare', 'run report', 'run export', 'run status', 'run estimate'],
  ...['jobs show', 'jobs list', 'jobs follow', 'jobs logs', 'jobs get', 'jobs cp'],
  ...['status', 'estimate', 'why', 'preflight', 'pools', 'churn', 'discover', 'versions', 'logs', 'events'],
  ...['tpus list', 'tpus status', 'dashboard', 'local env', 'doctor', 'config show'],
];

describe('Commands that change a cloud', () => {
  it('commands on a cloud change it, or are in the list of those that only read', () => {
    const onCloud = leavesOf(gleanerProgram()).filter(each =>
      each.options.some(({long}) => long === '--cloud'),
    );
    const quiet = onCloud.filter(each => !each.mayChange());
    const words = quiet.map(each => `${each.parent?.parent ? `${each.parent.name()} ` : ''}${each.name()}`);
    assert.deepEqual(words.sort(), READING.sort());
    assert.ok(onCloud.length > quiet.length + 20);
  });
});

describe('A deployment on Google Cloud', () => {
  const folder = new Folder(after);
  const fileWith = (text: string) => folder.put('gleaner.tfvars.json', text);

  it('a deployment on Google Cloud has the bucket, the database and the jobs that Terraform names', () => {
    const file = fileWith('{"project": "p", "name": "other", "jobs_collection": "tpu_jobs"}');
    const found = googleConnection({...projectIn(file), origin: file, settings: file});
    const {project, deployment, bucket, store, jobs, origin} = found;
    assert.deepEqual(
      [project, deployment, bucket, store, jobs, origin],
      ['p', 'other', 'p-other', 'firestore:other', 'tpu_jobs', file],
    );
  });

  for (const [text, error] of [
    ['{"region": "us-central1"}', /gleaner\.tfvars\.json names no project: set "project" in it/],
    ['[]', /names no project/],
    ['null', /it is not a JSON object/],
    ['{', /Failed to read the settings in /],
    ['{"project": "p", "name": "A"}', /"name" in .* is "A": set it to 4 to 15/],
  ] as const)
    it(`a deployment on Google Cloud is refused with a reason if its settings are ${text}`, () =>
      assert.throws(() => projectIn(fileWith(text)), error));
});

describe('Commands without credentials of Google', () => {
  const home = new Folder();
  after(() => home.end());

  for (const {command, tier} of [
    {command: ['status'], tier: '@full'},
    {command: ['tick', 'state'], tier: '@long'},
  ])
    it(`commands without credentials of Google say how to sign in, on one line: ${command.join(' ')} ${tier}`, () => {
      const env = {
        ...{PATH: process.env.PATH, HOME: home.path, METADATA_SERVER_DETECTION: 'none'},
        GLEANER_CLOUD: 'my-project-123',
      };
      const {status, stderr} = spawnSync(process.execPath, [GLEANER, ...command], {cwd: home.path, env});
      assert.equal(status, 1);
      assert.match(
        stderr.toString(),
        /^gleaner: Failed to sign in to Google Cloud: .*; sign in with `gcloud auth application-default login`\n$/,
      );
    });
});
