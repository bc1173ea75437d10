/** `gleaner doctor`: each finding, with the fault that it finds. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {deployedOf} from '../../../cli/deploy/settings.ts';
import type {Context} from '../../../cli/doctor/context.ts';
import {CHECKS, diagnose} from '../../../cli/doctor/doctor.ts';
import {openGoogle} from '../../../client/google/api.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {noticeRecords, receiverRecords} from '../../../shared/control-plane/documents/notices.ts';
import {paths} from '../../../shared/domain/names.ts';
import {afterFailure, NOTHING_SENT, newNotice} from '../../../shared/domain/notices/notice.ts';
import {openSqliteStore} from '../../../shared/embedded/sqlite-store.ts';
import {openObjects} from '../../../shared/google/objects.ts';
import {namedCommands, whyUnknown} from '../../support/docs/known-commands.ts';
import {brokenStore, withMethods} from '../../support/fakes/broken-store.ts';
import {GoogleProject, PROJECT} from '../../support/google/google-project.ts';
import {
  accountOf,
  at,
  BINDINGS,
  BUNDLE,
  functionOf,
  makeHealthy,
  quotaOf,
  ZIP,
} from '../../support/google/healthy-project.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {ROOT} from '../../support/machine/process.ts';
import {aRun} from '../../world/builders.ts';

const SETTINGS = {
  ...{project: PROJECT, region: 'us-central1', zones: ['us-central1-a'], accelerator: 'v5litepod-4'},
  ...{workers_per_zone: 4, max_budget_usd: 5},
};
const SERVING = 'TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI';
const DAY_MS = 86_400_000;

const read = (file: string) => readFileSync(ROOT + file, 'utf8');

/** Settings that a person sets, and roles that exist: those of Terraform, and those of Google in docs/. */
const SETTINGS_NAMES = [...read('terraform/variables.tf').matchAll(/^(?:variable "| {4})(\w+)/gm)].map(
  ([, name]) => name,
);
const ROLES = ['docs/inside/security.md', 'docs/operations.md', 'docs/deploy.md', 'terraform/people.tf']
  .map(read)
  .join();

/** Commands, settings and roles of a cure that do not exist. */
function whyNoCure(cure: string): string[] {
  const commands = /^(gleaner|gcloud) /.test(cure) ? [cure] : namedCommands(cure);
  const bare = cure.match(/gcloud [^;`]+/g) ?? [];
  const named = [...cure.matchAll(/`([a-z_.]+)`/g)].map(([, name = '']) => name);
  return [
    ...[...commands, ...bare].flatMap(command => whyUnknown(command) ?? []),
    ...named
      .filter(name => name.split('.').some(part => !SETTINGS_NAMES.includes(part)))
      .map(name => `no setting ${name}`),
    ...(cure.match(/roles\/[\w.]+\w/g) ?? [])
      .filter(role => !ROLES.includes(role))
      .map(role => `${role} is no role that a page names`),
  ];
}

/** Folders in which people may create, and prefixes that expire. */
function peopleIn(people: string, buckets: string): {folders: string[]; expiring: string[]} {
  const words = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, word = '']) => word);
  return {
    folders: words(people, /^ +(\w+) += "create"/gm),
    expiring: words(buckets, /matches_prefix = \["([^"]+)"\]/g),
  };
}

const notified = () =>
  (
    JSON.parse(read('functions/triggers.json')) as {notifications: {prefixes: string[]}[]}
  ).notifications.flatMap(({prefixes}) => prefixes);

type Fault = {
  check: string;
  name: string;
  severity?: 'warning';
  /** Changes the answers of Google, or the context. */
  inject: (
    google: GoogleProject,
    context: Context,
  ) => Partial<Context> | undefined | Promise<Partial<Context>>;
  says: RegExp;
  cure: RegExp;
  /** Further checks that the fault leaves without an answer. */
  unanswered?: string[];
};

/** Record of a deployment whose bundle and environment have one digit. */
function recordOf(digit: string): Awaited<ReturnType<Context['records']>>[number] {
  const artifact = {file: `${digit}.zip`, sha256: digit.repeat(64)};
  return {
    ...{deployed_at: `2026-11-0${digit}T09:00:00.000Z`, account: 'a@example.com', git_commit: null},
    ...{settings: SETTINGS, artifacts: {functions: artifact, bundle: artifact, environment: artifact}},
  };
}

const GRANT =
  /^gcloud secrets add-iam-policy-binding s --project=p --member=serviceAccount:gleaner-worker-api@.* --role=roles\/secretmanager.secretAccessor$/;
const gone = new ApiError(404, 'The resource was not found');

const withoutRole = (word: string) => BINDINGS.filter(({role}) => !role.includes(word));

const FAULTS: Fault[] = [
  {
    ...{check: 'APIs', name: 'an API that is off', says: /off: tpu/},
    cure: /services enable tpu\.googleapis\.com/,
    inject: google => void google.apis.delete('tpu'),
    unanswered: ['TPUs of the zones'],
  },
  {
    ...{check: 'service accounts', name: 'an absent account', says: /worker-api@.* is absent/},
    cure: /gleaner deploy/,
    inject: ({answers}) =>
      void answers.set(`GET ${at.project}/serviceAccounts/${accountOf('worker-api')}`, gone),
  },
  {
    ...{check: 'service accounts', name: 'a disabled account', says: /invoker@.* is disabled/},
    cure: /service-accounts enable gleaner-invoker@/,
    inject: ({answers}) =>
      void answers.set(`GET ${at.project}/serviceAccounts/${accountOf('invoker')}`, {disabled: true}),
  },
  {
    ...{check: 'roles', name: 'an agent of Google without its role', says: /gcp-sa-eventarc.* lacks/},
    cure: /add-iam-policy-binding my-project-123 --member=serviceAccount:service-123@gcp-sa-eventarc/,
    inject: ({policies}) => void policies.set(`projects/${PROJECT}`, withoutRole('eventarc')),
  },
  {
    ...{check: 'roles', name: 'a project without an account of Cloud TPU', severity: 'warning'},
    says: /service-123@gcp-sa-tpu\S+ lacks roles\/cloudtpu\.serviceAgent/,
    cure: /^gcloud beta services identity create --service=tpu/,
    inject: ({policies}) => void policies.set(`projects/${PROJECT}`, withoutRole('cloudtpu')),
  },
  {
    ...{check: 'roles', name: 'a control plane that may not use the account of workers'},
    cure: /gleaner deploy/,
    says: /gleaner-control@.* may not give nodes the account gleaner-worker@/,
    inject: ({answers}) =>
      void answers.set(`POST ${at.project}/serviceAccounts/${accountOf('worker')}:getIamPolicy`, {}),
  },
  {
    ...{check: 'your permissions', name: 'a person without a permission of the project', severity: 'warning'},
    says: /lacks cloudscheduler.jobs.get$/,
    cure: /--member=user:local --role=roles\/cloudscheduler.viewer/,
    inject: ({answers}) =>
      void answers.set(`POST ${at.project}:testIamPermissions`, {permissions: ['tpu.nodes.list']}),
  },
  {
    ...{check: 'your permissions', name: 'a person who is no operator', severity: 'warning'},
    says: /lacks pubsub.topics.publish$/,
    cure: /add local to `operators` in the settings, and run `gleaner deploy`/,
    inject: ({answers}) => void answers.set(`POST ${at.project}/topics/control:testIamPermissions`, {}),
  },
  {
    ...{check: 'your permissions', name: 'an absent topic', says: /no topic control/},
    cure: /^gleaner deploy$/,
    inject: ({answers}) => {
      answers.set(`POST ${at.project}/topics/control:testIamPermissions`, {});
      answers.set(`GET ${at.project}/topics/control`, gone);
    },
  },
  {
    ...{check: 'your permissions', name: 'a person who may not read the state', severity: 'warning'},
    unanswered: ['old environments'],
    ...{says: /lacks datastore.entities.list$/, cure: /`operators`/},
    inject: (_, {store}) => ({
      store: brokenStore(store, ['query'], 7, 'Missing or insufficient permissions.'),
    }),
  },
  {
    ...{check: 'secrets', name: 'a secret of jobs that the VMs may read in place of worker-api'},
    ...{says: /^worker-api may not read projects\/p\/secrets\/s$/, cure: GRANT},
    inject: ({answers}, {settings}) => {
      const members = [`serviceAccount:${accountOf('worker')}`];
      const bindings = [{role: 'roles/secretmanager.secretAccessor', members}];
      answers.set('GET /v1/projects/p/secrets/s:getIamPolicy', {bindings});
      return {settings: {...settings, job_secrets: {wandb: 'projects/p/secrets/s/versions/2'}}};
    },
  },
  {
    ...{check: 'organization policies', name: 'a region that no list names', severity: 'warning'},
    says: /gcp.resourceLocations may forbid us-central1/,
    cure: /org-policies describe/,
    inject: ({constraints}) =>
      void constraints.set('constraints/gcp.resourceLocations', {
        listPolicy: {allowedValues: ['in:eu-locations', 'ALLOW_ALL', 'all']},
      }),
  },
  {
    ...{
      check: 'organization policies',
      name: 'a denied region',
      says: /resourceLocations forbids us-central1/,
    },
    cure: /administrator/,
    inject: ({constraints}) =>
      void constraints.set('constraints/gcp.resourceLocations', {
        listPolicy: {allowedValues: ['in:us-locations'], deniedValues: ['in:us-central1-locations']},
      }),
  },
  {
    ...{check: 'organization policies', name: 'a forbidden Cloud NAT', says: /forbids Cloud NAT/},
    cure: /administrator/,
    inject: ({constraints}) =>
      void constraints.set('constraints/compute.restrictCloudNATUsage', {listPolicy: {allValues: 'DENY'}}),
  },
  {
    ...{
      check: 'organization policies',
      name: 'people who may be of another organization',
      severity: 'warning',
    },
    ...{says: /allowedPolicyMemberDomains may forbid .* in `operators`/, cure: /administrator/},
    inject: ({constraints}, {settings}) => {
      constraints.set('constraints/iam.allowedPolicyMemberDomains', {listPolicy: {allowedValues: ['C0x']}});
      return {settings: {...settings, operators: ['user:a@example.com']}};
    },
  },
  {
    ...{check: 'TPU quota', name: 'a quota of zero', says: new RegExp(`${SERVING} is 0 in us-central1-a`)},
    cure: /iam-admin\/quotas/,
    inject: ({answers}) => void answers.set(`GET ${at.quotas}/${SERVING}`, quotaOf('0', 'us-central1-a')),
  },
  {
    ...{check: 'TPU quota', name: 'a quota for one of four nodes', severity: 'warning', cure: /quotas/},
    says: /is 4 in us-central1-a, and 16 are wanted/,
    inject: ({answers}) => void answers.set(`GET ${at.quotas}/${SERVING}`, quotaOf('4', 'us-central1-a')),
  },
  {
    ...{check: 'TPUs of the zones', name: 'a zone without the type'},
    says: /us-central1-a has no v5litepod-4/,
    cure: /accelerator-types list --zone=us-central1-a/,
    inject: ({answers}) => void answers.set(`GET ${at.zone}/acceleratorTypes/v5litepod-4`, gone),
  },
  {
    ...{check: 'TPUs of the zones', name: 'a zone without the runtime', says: /has no v2-alpha-tpuv5-lite/},
    cure: /zone/,
    inject: ({answers}) => void answers.set(`GET ${at.zone}/runtimeVersions/v2-alpha-tpuv5-lite`, gone),
  },
  {
    ...{check: 'Scheduler', name: 'a paused job', says: /gleaner-tick is PAUSED/},
    cure: /gleaner tick resume --location us-central1/,
    inject: ({answers}) => void answers.set(`GET ${at.job}`, {state: 'PAUSED'}),
  },
  {
    ...{check: 'Scheduler', name: 'a paused job in a region of its own', says: /gleaner-tick is PAUSED/},
    cure: /gleaner tick resume --location us-east1$/,
    inject: ({answers}) => {
      answers.set(`GET ${at.job.replace('us-central1', 'us-east1')}`, {state: 'PAUSED'});
      return deployedOf({...SETTINGS, scheduler_region: 'us-east1'});
    },
  },
  {
    ...{check: 'Scheduler', name: 'an absent job', says: /no job projects/, cure: /deploy/},
    inject: ({answers}) => void answers.set(`GET ${at.job}`, gone),
  },
  {
    ...{check: 'Scheduler', name: 'a job that fails', says: /failed with code 7/, cure: /gleaner tick/},
    inject: ({answers}) => void answers.set(`GET ${at.job}`, {state: 'ENABLED', status: {code: 7}}),
  },
  {
    ...{check: 'region of the bucket', name: 'a zone of another region', severity: 'warning'},
    ...{says: /is in europe-west4, and us-central1-a elsewhere/, cure: /choose zones of europe-west4/},
    inject: ({answers}) => void answers.set(`GET ${at.bucket}`, {location: 'EUROPE-WEST4'}),
  },
  {
    ...{check: 'region of the bucket', name: 'an absent bucket', says: /there is no bucket/, cure: /deploy/},
    inject: ({answers}) => void answers.set(`GET ${at.bucket}`, gone),
  },
  {
    ...{check: 'functions', name: 'a function of other code', says: /gleaner-on-tick runs functions\/cc/},
    cure: /deploy/,
    inject: ({answers}) =>
      void answers.set(`GET ${at.functions}/gleaner-on-tick`, functionOf({zip: 'c'.repeat(64)}) as never),
  },
  {
    ...{check: 'functions', name: 'a function with another bundle', says: /gives workers the bundle dd/},
    cure: /deploy/,
    inject: ({answers}) =>
      void answers.set(`GET ${at.functions}/gleaner-on-tpu`, functionOf({bundle: 'd'.repeat(64)}) as never),
  },
  {
    ...{check: 'functions', name: 'a function that failed', says: /gleaner-on-job is FAILED/},
    cure: /functions describe/,
    inject: ({answers}) =>
      void answers.set(`GET ${at.functions}/gleaner-on-job`, functionOf({state: 'FAILED'}) as never),
  },
  {
    ...{check: 'functions', name: 'an absent function', says: /no function gleaner-worker-api/},
    cure: /deploy/,
    inject: ({answers}) => void answers.set(`GET ${at.functions}/gleaner-worker-api`, gone),
  },
  {
    ...{check: 'functions', name: 'no record of a deployment', severity: 'warning', says: /no deployment/},
    cure: /deploy/,
    inject: () => ({applied: undefined}),
  },
  {
    ...{check: 'old environments', name: 'archives that nothing needs', severity: 'warning'},
    says: /^1 archive of 3 bytes, which no unfinished run/,
    cure: /^gcloud storage rm gs:\/\/\S+\/1{64}\.tar\.gz$/,
    inject: async (google, {bucket, store}) => {
      // The record of digit 1 is the oldest of seven, and that of digit 2 has the bundle of a run.
      for (const digit of '1234567')
        await google.put(bucket, `environments/${digit.repeat(64)}.tar.gz`, 'env');
      await store.transaction(async tx => runRecords.set(tx, {...aRun({run: 'r'}), bundle: '2'.repeat(64)}));
      return {records: async () => [...'1234567'].map(recordOf)};
    },
  },
  {
    ...{check: 'prices', name: 'old prices', severity: 'warning', says: /\d+ days old/},
    cure: /gleaner prices update/,
    inject: (_, {now_ms}) => ({now_ms: now_ms + 40 * DAY_MS}),
  },
  {
    ...{check: 'notifications', name: 'a receiver that refuses'},
    ...{
      says: /^hooks\.example\.com answered 404: no_service; 1 try in a row failed since \d{4}-\S+ \S+ UTC, and 1 wait$/,
      cure: /correct the address of `notify`/,
    },
    inject: async (_, {store, settings, now_ms}) => {
      const news = {type: 'run.failed', key: 'k', text: 't', reason: null, facts: {}} as const;
      const failed = afterFailure(
        newNotice(news, now_ms, DAY_MS),
        NOTHING_SENT,
        now_ms,
        'hooks.example.com answered 404: no_service',
      );
      await store.transaction(async tx => {
        noticeRecords.set(tx, paths.notice('1'), failed.notice);
        receiverRecords.set(tx, paths.receiver(), failed.receiver);
      });
      return {settings: {...settings, notify: {format: 'slack', url_secret: 'projects/p/secrets/s'}}};
    },
  },
  {
    ...{check: 'a write', name: 'a person who may not write', says: /does not have storage\.objects\.create/},
    cure: /add yours to `operators` or `users` in the settings and run `gleaner deploy`/,
    inject: ({answers}) =>
      void answers.set(
        `POST /upload${at.bucket}/o`,
        new ApiError(403, 'someone@example.com does not have storage.objects.create access'),
      ),
  },
  {
    ...{check: 'a write', name: 'a bucket that is gone', unanswered: ['old environments']},
    ...{says: /does not exist/, cure: /repair the access/},
    inject: ({url}) => ({
      objects: openObjects({project: PROJECT, bucket: 'no-such-bucket', endpoint: url, token: 'none'}),
    }),
  },
  {
    ...{check: 'a write', name: 'a bucket that overwrites', says: /was created, then created/, cure: /proxy/},
    inject: (_, {objects}) => ({
      // A proxy that drops preconditions: the second create overwrites the object.
      objects: withMethods(objects, {
        create: async (name, bytes) => {
          await objects.delete(name);
          return objects.create(name, bytes);
        },
      }),
    }),
  },
];

describe('gleaner doctor', () => {
  let google: GoogleProject;
  let context: Context;
  beforeEach(async () => {
    google = await new GoogleProject().start();
    makeHealthy(google);
    const api = openGoogle({endpoint: google.url});
    const bucket = `${PROJECT}-gleaner`;
    context = {
      ...deployedOf(SETTINGS),
      ...{api, is_google: true, project: PROJECT, bucket, settings: SETTINGS},
      store: openSqliteStore(':memory:'),
      records: async () => [],
      objects: openObjects({project: PROJECT, bucket, endpoint: google.url, token: 'none'}),
      now_ms: Date.parse('2026-11-25T10:00:00Z'),
      applied: {
        ...{deployed_at: '2026-11-25T09:00:00.000Z', account: 'a@example.com', git_commit: null},
        settings: SETTINGS,
        artifacts: {functions: {file: 'f.zip', sha256: ZIP}, bundle: {file: 'b.tar.gz', sha256: BUNDLE}},
      },
    };
  });
  afterEach(async () => {
    await context.store.close();
    await google.close();
  });

  it('gleaner doctor finds no fault in a healthy deployment, and leaves no object', async () => {
    const findings = await diagnose(context);
    assert.deepEqual(
      findings.filter(({severity}) => severity !== 'ok'),
      [],
    );
    assert.deepEqual(await google.names(context.bucket), []);
  });

  it('gleaner doctor names the role that the owner of a shared network must grant', async () => {
    const settings = {...SETTINGS, network: {name: 'projects/host-1/global/networks/n'}};
    const found = (await diagnose({...context, settings})).find(({check}) => check === 'roles');
    assert.match(
      found?.evidence ?? '',
      /host-1, which has the network, must grant roles\/tpu\.xpnAgent to serviceAccount:service-123@cloud-tpu/,
    );
  });

  it('gleaner doctor has a fault for each check', () => {
    const tried = new Set(FAULTS.map(({check}) => check));
    assert.deepEqual(
      CHECKS.map(({name}) => name).filter(name => !tried.has(name)),
      [],
    );
  });

  for (const {check, name, severity = 'error', inject, says, cure, unanswered = []} of FAULTS)
    it(`gleaner doctor finds ${name}, and says what mends it`, async () => {
      const changed = (await inject(google, context)) ?? {};
      const findings = await diagnose({...context, ...changed});
      const all = findings.filter(each => each.severity !== 'ok');
      assert.deepEqual(
        all.map(each => [each.check, each.severity]).sort(),
        [[check, severity], ...unanswered.map(each => [each, 'error'])].sort(),
      );
      const bad = all.filter(each => each.check === check);
      assert.match(bad[0]?.evidence ?? '', says);
      assert.match(bad[0]?.cure ?? '', cure);
      assert.deepEqual(whyNoCure(bad[0]?.cure ?? ''), []);
    });

  const wrongCures = [
    {cure: 'gleaner deploi', says: /no command deploi/},
    {cure: 'run `gleaner deploy --again`', says: /no option --again/},
    {cure: 'gcloud services enable tpu.googleapis.com --force', says: /--force/},
    {cure: 'add yours to `operator` in the settings', says: /no setting operator/},
    {cure: 'grant yours roles/storage.objectUser', says: /roles\/storage.objectUser is no role/},
  ];
  for (const {cure, says} of wrongCures)
    it(`gleaner doctor has a check of cures, which refuses: ${cure}`, () =>
      assert.match(whyNoCure(cure).join(), says));

  it('gleaner doctor tries a write also for operators and users, who may delete nothing', async () => {
    const {objects} = context;
    const denied = Object.assign(new Error('does not have storage.objects.delete access'), {code: 403});
    const kept = withMethods(objects, {
      delete: async () => {
        throw new Error('Failed to delete', {cause: denied});
      },
    });
    const findings = await diagnose({...context, objects: kept});
    const found = findings.find(({check}) => check === 'a write');
    assert.equal(found?.severity, 'ok', found?.evidence);
    assert.match(found?.evidence ?? '', /left to its lifecycle rule/);
    const [name = ''] = await google.names(context.bucket);
    const {folders, expiring} = peopleIn(read('terraform/people.tf'), read('terraform/buckets.tf'));
    const isBelow = (folder: string) => name.startsWith(`${folder}/`);
    assert.ok(folders.some(isBelow), `${name} is in no folder in which people may create: ${folders}`);
    assert.ok(
      expiring.some(prefix => name.startsWith(prefix)),
      `${name} expires by no rule: ${expiring}`,
    );
    assert.ok(!notified().some(prefix => name.startsWith(prefix)), `${name} starts a function`);
  });

  it('gleaner doctor names no archive where the bundle of a run has no record, because its environment is unknown', async () => {
    await google.put(context.bucket, `environments/${'1'.repeat(64)}.tar.gz`, 'env');
    await context.store.transaction(async tx =>
      runRecords.set(tx, {...aRun({run: 'r'}), bundle: '9'.repeat(64)}),
    );
    const found = (await diagnose(context)).find(({check}) => check === 'old environments');
    assert.deepEqual([found?.severity, found?.cure], ['ok', null], found?.evidence);
    assert.match(found?.evidence ?? '', /^1 archive; no record has the bundle 9{64}/);
  });

  it('gleaner doctor names no archive that no record has, because plain Terraform may have deployed it', async () => {
    await google.put(context.bucket, `environments/${'8'.repeat(64)}.tar.gz`, 'env');
    const records = async () => [...'1234567'].map(recordOf);
    const found = (await diagnose({...context, records})).find(({check}) => check === 'old environments');
    assert.deepEqual([found?.severity, found?.cure], ['ok', null], found?.evidence);
  });

  it('gleaner doctor goes on where the database is gone', async () => {
    const store = brokenStore(context.store, ['get', 'query'], 5, 'The database gleaner does not exist');
    const findings = await diagnose({...context, store});
    const bad = findings.filter(({severity}) => severity !== 'ok');
    assert.deepEqual(
      bad.map(({check, severity}) => [check, severity]),
      [
        ['your permissions', 'error'],
        ['old environments', 'error'],
        ['prices', 'error'],
        ['notifications', 'error'],
      ],
    );
  });

  it('gleaner doctor goes on after a check that Google refuses', async () => {
    google.answers.set(
      `POST ${at.project}:getIamPolicy`,
      new ApiError(403, 'The caller does not have permission'),
    );
    const findings = await diagnose(context);
    const bad = findings.filter(({severity}) => severity !== 'ok');
    assert.deepEqual(
      bad.map(({check, severity}) => [check, severity]),
      [['roles', 'error']],
    );
    assert.match(bad[0]?.evidence ?? '', /does not have permission/);
    assert.match(bad[0]?.cure ?? '', /roles\/iam\.securityReviewer/);
    assert.deepEqual(whyNoCure(bad[0]?.cure ?? ''), []);
  });
});

describe('gleaner doctor on a local cloud @full', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud();
  });

  it('gleaner doctor on a local cloud runs the checks that a local cloud has, and exits with 1 after an error', async () => {
    const port = ['--port', new URL(cloud.url).port];
    const healthy = await gleaner(['doctor', ...port, '--json']);
    assert.equal(healthy.code, 0, healthy.stderr);
    const {findings} = JSON.parse(healthy.stdout) as {findings: {check: string; severity: string}[]};
    const run = findings.filter(({severity}) => severity !== 'skipped').map(({check}) => check);
    assert.deepEqual(run, ['TPUs of the zones', 'Scheduler', 'prices', 'notifications', 'a write']);
    await gleaner(['tick', 'pause', ...port]);
    const paused = await gleaner(['doctor', ...port]);
    assert.equal(paused.code, 1, paused.stderr);
    assert.match(
      paused.stdout,
      /ERROR +Scheduler +gleaner-tick is PAUSED[\s\S]*Scheduler: gleaner tick resume/,
    );
    assert.match(paused.stdout, /- +APIs +not on a local cloud/);
  });
});
