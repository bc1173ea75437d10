/** The ten steps of the smoke test. Each says what it saw, and throws `CliError` with the first cure. */

import {outcomeOf, publishText} from '../../client/cloud/send-message.ts';
import {openLogs} from '../../client/logs/agent-logs.ts';
import {CliError} from '../../client/text/errors.ts';
import {dollarText} from '../../client/text/format.ts';
import type {RunState} from '../../client/views/run-state.ts';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import {isFinal} from '../../shared/domain/job/lifecycle.ts';
import {outputsPrefix, parseOutputObject} from '../../shared/domain/names.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {contextOf, diagnose} from '../doctor/doctor.ts';
import {verifyRun} from '../run/verify.ts';
import {waitFor} from '../run/wait.ts';
import {
  type Bench,
  control,
  hasWorkedFor,
  leased,
  leftOf,
  newRun,
  openJobs,
  records,
  spentBy,
  TPU_S,
  testTpus,
  waitForRun,
  withoutTpus,
} from './bench.ts';
import {tokenOf, tryRights} from './rights.ts';

export type Step = {name: string; only_google?: boolean; run: (bench: Bench) => Promise<string>};

/**
 * Records of the work that outlasts a lost node and a stop. On Google Cloud a run stores the last token of each sample in 2 layers: with
 * 2304 numbers of 2 bytes in a layer that are 9 kB, so 22 samples a shard and some 2300 shards. At 5 to 20 shards a second that is 2 to 8
 * minutes of one TPU and 0.5 GB, which expire after a day. A local cloud reads some 500 records a second.
 */
const LONG = {google: 50_000, local: 10_000};
const BURST = {google: 1000, local: 20};

/** Settings of the long work, which the local cloud does not need. */
const shortOutput = ({cloud}: Bench) => (cloud.connection.is_google ? {tokens: 'last', expire_days: 1} : {});

const sizeOf = (size: {google: number; local: number}, {cloud}: Bench) =>
  cloud.connection.is_google ? size.google : size.local;

const deployment: Step = {
  name: 'deployment',
  async run({cloud, record}) {
    const findings = await diagnose(await contextOf(cloud, record));
    const errors = findings.filter(({severity}) => severity === 'error');
    if (errors.length > 0)
      throw new CliError(
        errors.map(({check, evidence, cure}) => `${check}: ${evidence}; ${cure}`).join('\n'),
      );
    const done = findings.filter(({severity}) => severity !== 'skipped');
    return `gleaner doctor finds no error in ${done.length} checks`;
  },
};

const rights: Step = {
  name: 'rights of TPUs',
  only_google: true,
  async run({api, cloud, state}) {
    const {project, deployment: name, bucket} = cloud.connection;
    const [worker = '', worker_api = ''] = await Promise.all(
      ['worker', 'worker-api'].map(each =>
        tokenOf(api, `${name}-${each}@${project}.iam.gserviceaccount.com`, project),
      ),
    );
    const place = {bucket, logs_bucket: `${bucket}-logs`, id: state.id};
    return tryRights({worker, worker_api}, place, api.endpoint);
  },
};

const messages: Step = {
  name: 'messages',
  async run({cloud}) {
    const pause = JSON.stringify({action: 'pause', run: 'absent'});
    const outcomes = [];
    for (const text of [pause, pause, 'not json'])
      outcomes.push(await outcomeOf(cloud.store, await publishText(cloud, 'control', text), 120));
    const wrong = outcomes.find(({outcome}) => outcome !== 'rejected');
    if (wrong) throw new CliError(`A message that is not valid was ${wrong.outcome}: ${wrong.reason}`);
    return `three messages, three rejections: ${outcomes.at(-1)?.reason}`;
  },
};

/** Empty streams: each is registered and refused, and none asks for a TPU. */
const burst: Step = {
  name: 'a burst of streams',
  async run(bench) {
    const size = sizeOf(BURST, bench);
    const run = await newRun(bench, 'burst', Array<string>(size).fill(''));
    const cure = 'raise `instances` in functions/triggers.json';
    const what = `count of ${size} streams in ${run}`;
    await waitFor(
      bench,
      what,
      {limit_s: 180, cure},
      async () => (await runRecords.get(bench.cloud.store, run))?.streams_failed === size || undefined,
    );
    return `${run} counts ${size} streams`;
  },
};

const oneTpu: Step = {
  name: 'one TPU',
  async run(bench) {
    const {cloud, clock, state, keep} = bench;
    const run = await newRun(bench, 'ten', [records(10)]);
    const worker = ({workers}: RunState) => workers.find(each => hasWorkedFor(each, run));
    const errors = `read \`gleaner status ${run}\`, and LAST ERROR of \`gleaner tpus list --all\``;
    const node = await waitForRun(bench, run, `TPU for ${run}`, worker, {cure: errors});
    state.zone = node.zone;
    keep();
    const seconds = Math.round((clock.now() - Date.parse(node.born_at ?? node.created_at)) / 1000);
    const logs = openLogs(cloud.connection);
    const cure = 'the log of each boot belongs there: read the serial console of the node';
    const log = await waitFor(bench, `log in logs/${node.name}/`, {limit_s: 300, cure}, async () =>
      (await logs.list(`logs/${node.name}/`)).at(-1),
    );
    return `${node.name} in ${node.zone}: ${seconds} s from create to the work of ${run}; its log is ${log.name}`;
  },
};

const tenSamples: Step = {
  name: 'ten samples',
  run: bench => verifyEnd(bench, bench.state.runs.ten ?? ''),
};

/** Waits for the end of a run, and verifies it. */
async function verifyEnd(bench: Bench, run: string): Promise<string> {
  const isDone = (view: RunState) => view.run.status === 'completed' || undefined;
  await waitForRun(bench, run, `end of ${run}`, isDone, {limit_s: 1800});
  const {ok, stored_once, samples, problems} = await verifyRun(bench.cloud.connection, run);
  if (!ok) throw new CliError(`${run} has ${stored_once} of ${samples} samples: ${problems.join(', ')}`);
  return `${run} is completed, and every one of ${samples} samples is stored once`;
}

const lostNode: Step = {name: 'a lost node', run: bench => loseNode(bench, 2)};

/** Deletes the TPU of a run after its first shard. A run that is completed before is too small: the next attempt has more records. */
async function loseNode(bench: Bench, attempts: number): Promise<string> {
  const {cloud, state, keep} = bench;
  const size = state.lost_records ?? sizeOf(LONG, bench);
  const run = await newRun(bench, 'lost', [records(size)], shortOutput(bench));
  const first = await leased(bench, run);
  // The control plane counts shards in batches, which may be late.
  const stored = async () =>
    (await cloud.objects.list(outputsPrefix(run))).find(({name}) => parseOutputObject(name));
  await waitForRun(bench, run, `shard of ${run}`, stored, {limit_s: 1800});
  await bench.tpus.delete(first.name, first.zone);
  const cure = 'read `gleaner events --kind worker`';
  const isOther = ({name, incarnation}: Worker) => name !== first.name || incarnation > first.incarnation;
  const other = ({run: {status}, workers}: RunState) =>
    workers.find(worker => hasWorkedFor(worker, run) && isOther(worker)) ??
    (status === 'completed' ? status : undefined);
  const next = await waitForRun(bench, run, 'next TPU', other, {cure});
  if (next !== 'completed')
    return `incarnation ${first.incarnation} of ${first.name} was deleted, ${next.name} has incarnation ${next.incarnation}; ${await verifyEnd(bench, run)}`;
  state.lost_records = size * 4;
  keep();
  if (attempts > 1) return loseNode(bench, attempts - 1);
  const early = `${run} was completed before ${first.name} was lost, so nothing had to go on`;
  throw new CliError(`${early}: the same command tries ${state.lost_records} records`);
}

/**
 * Makes a pool of one TPU that asks through the queue of the zone, or gives the pool its slot back. The name has the accelerator, which
 * no message changes.
 */
async function queueingPool(bench: Bench): Promise<string> {
  const {cloud, state, keep, record} = bench;
  const {accelerator, runtime_version, zones} = await contextOf(cloud, record);
  const pool = nameIn(cloud.connection.deployment, `try-${accelerator}`);
  state.pool = pool;
  keep();
  const terms = {accelerator, runtime_version, zones: [state.zone ?? zones[0]], workers_per_zone: 1};
  await control(bench, {action: 'pool', pool, ...terms, provisioning: 'queued-resource'});
  return pool;
}

const stop: Step = {
  name: 'a queue and a stop',
  async run(bench) {
    const pool = await queueingPool(bench);
    const run = await newRun(bench, 'stop', [records(sizeOf(LONG, bench))], {pool, ...shortOutput(bench)});
    const {name} = await leased(bench, run);
    const queued = (await testTpus(bench)).find(each => each.name === name)?.queued;
    if (!queued) throw new CliError(`${name} has no queued resource: read the log of on-tpu`);
    await control(bench, {action: 'stop', run});
    const begun_ms = bench.clock.now();
    await withoutTpus(bench);
    const seconds = Math.round((bench.clock.now() - begun_ms) / 1000);
    await control(bench, {action: 'scale', pool, workers_per_zone: 0});
    const spent = dollarText(await spentBy(bench));
    return `${name} came through a queued resource, which was ${queued.state}; no TPU and no queued resource of the test is left ${seconds} s after the stop; the test has cost ${spent}`;
  },
};

const idle: Step = {
  name: 'an idle day',
  only_google: true,
  async run(bench) {
    await withoutTpus(bench);
    const {project} = bench.cloud.connection;
    return `no TPU of the test is there; look tomorrow, for cents: https://console.cloud.google.com/billing/linkedaccount?project=${project}`;
  },
};

/** A job that reaches the metadata server could speak as the account of TPUs. */
const CODE = `import socket
try:
    socket.create_connection(("169.254.169.254", 80), 5).close()
    raise RuntimeError("a job reaches the metadata server")
except OSError as error:
    result = f"metadata: {error}"
`;

const job: Step = {
  name: 'a job',
  async run(bench) {
    const {cloud, state, keep, clock} = bench;
    for (const open of await openJobs(bench)) await control(bench, {action: 'cancel', job: open});
    const budget_usd = await leftOf(bench);
    const id = `smoke-${state.id}-${++state.attempts}`;
    state.jobs.push(id);
    keep();
    const code = cloud.connection.is_google ? CODE : 'result = "one"\n';
    const path = `${cloud.jobs}/${id}`;
    const begun_ms = clock.now();
    await cloud.store.transaction(async tx =>
      tx.create(path, {code, timeout: 300, budget_usd, status: 'pending'}),
    );
    const read = async (isWanted: (job: Document) => boolean) => {
      const found = await cloud.store.get(path);
      return found && isWanted(found) ? found : undefined;
    };
    const event = 'read the log of on-job; the agent of Eventarc may need some minutes';
    await waitFor(bench, `taken job ${id}`, {limit_s: 120, cure: event}, () =>
      read(({status}) => status !== 'pending'),
    );
    const taken_s = Math.round((clock.now() - begun_ms) / 1000);
    const cure = `read \`gleaner jobs show ${id}\``;
    const done = await waitFor(bench, `end of job ${id}`, {limit_s: TPU_S, cure}, () => read(isFinal));
    if (done.status !== 'completed') throw new CliError(`${id} is ${done.status}: ${done.error}; ${cure}`);
    return `${id} was taken up after ${taken_s} s, and its result is ${JSON.stringify(done.result)}`;
  },
};

export const STEPS: readonly Step[] = [
  ...[deployment, rights, messages, burst, oneTpu, tenSamples, lostNode, stop, idle, job],
];
