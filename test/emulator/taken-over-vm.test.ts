/** A VM that is taken over: its own token and the tokens of its leases reach its own work, and nothing of another VM. */
import assert from 'node:assert/strict';
import {accessTokenOf} from '../../emulator/http/access-tokens.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {tokenUrl} from '../support/machine/a-cloud.ts';
import {aRun, aStream} from '../world/builders.ts';
import {aRunningJob} from '../world/scenes/jobs.ts';
import {FORGER, from, LEASE, SECRETS, TwoWorkers, VICTIM} from './two-workers.ts';

const OWN_LEASE = {run: 'own-run', stream: '001', epoch: 1};
const OWN = {
  run: OWN_LEASE.run,
  stream: OWN_LEASE.stream,
  worker_id: 1,
  object: 'datasets/own-run/stream_001.jsonl',
};
const MODEL = 'gs://gleaner-local/models/own';
const JOB_LEASE = {job: 'own-job', epoch: 1};

/** Requests that a VM sends with the token of its host, of its lease, or of the process of its job. */
const OWN_REQUESTS = [
  {does: 'reads its stream', method: 'GET', name: OWN.object},
  {does: 'stores a shard', method: 'POST', name: 'activations/own-run/tpu_1/shard_0002.safetensors'},
  {does: 'lists its shards', method: 'LIST', name: 'activations/own-run/tpu_1/'},
  {does: 'stores a partial', method: 'POST', name: 'partials/own-run/tpu_1/shard_0002.e1.s0-1.safetensors'},
  {does: 'records the model of its run', method: 'POST', name: 'activations/own-run/model.json'},
  {does: 'reads the weights of its run', method: 'GET', name: 'models/own/model.safetensors'},
  {does: 'writes its log', method: 'POST', name: `logs/${FORGER.name}/2.log`},
  {does: 'overwrites its log', method: 'POST', name: `logs/${FORGER.name}/2.log`},
  {does: 'reads a bundle that it knows', method: 'GET', name: 'code/abc.tar.gz'},
  {does: 'reads the input of its job', method: 'GET', name: 'models/input/config.json'},
  {does: 'overwrites its own file', method: 'POST', name: 'checkpoints/own-job/own/b'},
  {does: 'lists its own files', method: 'LIST', name: 'checkpoints/own-job/own'},
  {does: 'deletes its own file', method: 'DELETE', name: 'checkpoints/own-job/own/b'},
];

const THEIRS = 'activations/my-run/tpu_7';

const FOREIGN_REQUESTS = [
  {does: 'reads the stream of another run', method: 'GET', name: 'datasets/my-run/stream_007.jsonl'},
  {does: 'reads another stream of its run', method: 'GET', name: 'datasets/own-run/stream_010.jsonl'},
  {does: 'reads the shards of another run', method: 'GET', name: `${THEIRS}/shard_0001.safetensors`},
  {does: 'lists another run', method: 'LIST', name: 'activations/my-run/'},
  {does: 'lists all runs', method: 'LIST', name: 'activations/'},
  {does: 'lists the bundles of code', method: 'LIST', name: 'code/'},
  {does: 'stores a shard of another run', method: 'POST', name: `${THEIRS}/shard_0002.safetensors`},
  {
    does: 'stores a shard of another stream',
    method: 'POST',
    name: 'activations/own-run/tpu_10/shard_0001.safetensors',
  },
  {
    does: 'stores a partial of another run',
    method: 'POST',
    name: 'partials/my-run/tpu_7/shard_0001.e3.s0-1.safetensors',
  },
  {does: 'chooses the model of another run', method: 'POST', name: 'activations/my-run/model.json'},
  {does: 'plants a manifest', method: 'POST', name: 'activations/own-run/manifest.json'},
  {does: 'reads the weights of another run', method: 'GET', name: 'models/other/model.safetensors'},
  {does: 'overwrites the log of another VM', method: 'POST', name: `logs/${VICTIM.name}/2.log`},
  {does: 'overwrites the log of a later incarnation', method: 'POST', name: `logs/${FORGER.name}/20.log`},
  {does: 'deletes the log of another VM', method: 'DELETE', name: `logs/${VICTIM.name}/2.log`},
  {does: 'reads the checkpoint of another job', method: 'GET', name: 'checkpoints/my-job/own/a'},
  {does: 'overwrites the checkpoint of another job', method: 'POST', name: 'checkpoints/my-job/own/a'},
  {does: 'deletes the checkpoint of another job', method: 'DELETE', name: 'checkpoints/my-job/own/a'},
  {does: 'lists the jobs with checkpoints', method: 'LIST', name: 'checkpoints/'},
  {does: 'plants a version of another job', method: 'POST', name: 'checkpoints/my-job/epoch_1/host_0/a'},
  {does: 'deletes the output of its job', method: 'DELETE', name: 'jobs/own-job/epoch_1/output/000001.txt'},
  {does: 'reads an input of another job', method: 'GET', name: 'models/input-2/config.json'},
  {does: 'stores the output of a job', method: 'POST', name: 'jobs/my-job/epoch_1/output/000001.txt'},
  {does: 'stores the result of a command', method: 'POST', name: `execs/my-exec/${VICTIM.name}/0/000001.txt`},
  {does: 'deletes its shard', method: 'DELETE', name: 'activations/own-run/tpu_1/shard_0001.safetensors'},
  {does: 'overwrites its shard', method: 'POST', name: 'activations/own-run/tpu_1/shard_0001.safetensors'},
];

describe('a VM that is taken over', () => {
  const world = new TwoWorkers();
  let tokens: string[];
  before(async () => {
    await world.start();
    await world.reset();
    const work = {phase: 'working' as const, work: 'own-run/001', epoch: 1};
    const lease = {worker: FORGER.name, incarnation: 2, epoch: 1};
    await world.write(async tx => {
      const worker = await workerRecords.get(tx, FORGER.name);
      const spec = {...aRun().spec, model: MODEL};
      runRecords.set(tx, aRun({run: 'own-run', spec, streams_in_progress: 1}));
      streamRecords.set(tx, aStream({...OWN, status: 'in_progress', epoch: 1, lease}));
      workerRecords.set(tx, {...(worker ?? FORGER), ...work});
      const inputs = ['gs://gleaner-local/models/input'];
      const job = aRunningJob({...JOB_LEASE, inputs, lease: {...lease, host_count: 1, members: []}});
      tx.set(paths.job('jobs', 'own-job'), job as unknown as Document);
    });
    // The event of a stored stream may change the documents.
    tokens = [await tokenFor(null), await tokenFor(OWN_LEASE), await tokenFor(JOB_LEASE, {for: 'job'})];
    const names = [...OWN_REQUESTS, ...FOREIGN_REQUESTS].filter(
      each => each.method !== 'POST' || /overwrites/.test(each.does),
    );
    for (const name of new Set(names.filter(each => each.method !== 'LIST').map(each => each.name)))
      assert.equal(
        (await fetch(`${tokenUrl(world.cloud)}${uploadOf(name)}`, {method: 'POST', body: 'x'})).status,
        200,
      );
  });
  after(() => world.scratch.end());

  const ask = (lease: object | null, more: object = {}) =>
    world.ask({action: 'token', lease, ...more, ...from(FORGER.name, 2)}, {secret: SECRETS.forger});

  async function tokenFor(lease: object | null, more?: object): Promise<string> {
    const {status, text} = await ask(lease, more);
    assert.equal(status, 200, text);
    const {access_token, expires_at} = JSON.parse(text);
    const left_s = (Date.parse(expires_at) - Date.now()) / 1000;
    assert.ok(left_s > 3000 && left_s <= 3600, expires_at);
    return access_token;
  }

  const uploadOf = (name: string) =>
    `/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=${encodeURIComponent(name)}`;

  async function statusOf({method, name}: {method: string; name: string}, token: string): Promise<number> {
    const objects = '/storage/v1/b/gleaner-local/o';
    const path =
      method === 'POST'
        ? uploadOf(name)
        : method === 'LIST'
          ? `${objects}?prefix=${encodeURIComponent(name)}`
          : `${objects}/${encodeURIComponent(name)}`;
    const answer = await fetch(`${world.cloud.url}${path}`, {
      method: method === 'LIST' ? 'GET' : method,
      headers: {authorization: `Bearer ${token}`},
      ...(method === 'POST' ? {body: '{}'} : {}),
    });
    return answer.status;
  }

  const ofTheVm = () => accessTokenOf(world.cloud.token, accountsOf('gleaner-local', 'gleaner').worker);

  for (const request of OWN_REQUESTS)
    it(`${request.does} only by one of its tokens`, async () => {
      const statuses = await Promise.all(tokens.map(token => statusOf(request, token)));
      assert.deepEqual(statuses.map(status => (status === 204 ? 200 : status)).toSorted(), [200, 403, 403]);
      assert.equal(await statusOf(request, ofTheVm()), 403);
    });

  for (const request of FOREIGN_REQUESTS)
    it(`never ${request.does}`, async () => {
      for (const token of [...tokens, ofTheVm()]) assert.equal(await statusOf(request, token), 403);
    });

  for (const {name, lease} of [
    {name: 'the lease of another VM', lease: LEASE},
    {name: 'an earlier epoch of its lease', lease: {...OWN_LEASE, epoch: 0}},
    {name: 'another stream of its run', lease: {...OWN_LEASE, stream: '010'}},
    {name: 'a job that it does not hold', lease: {job: 'my-job', epoch: 1}},
    {name: 'a command that it has not', lease: {exec: 'my-exec'}},
    {name: 'an earlier epoch of its job', lease: {...JOB_LEASE, epoch: 0}},
  ])
    it(`gets no token and no secrets for ${name}`, async () => {
      for (const whose of ['agent', 'job']) {
        const {status, text} = await ask(lease, {for: whose});
        assert.equal(status, 409, text);
        assert.doesNotMatch(text, /access_token/);
      }
      assert.equal((await ask(lease, {action: 'secrets'})).status, 'exec' in lease ? 400 : 409);
    });

  it('leaves no token in the log of the functions', async () => {
    for (const token of tokens)
      assert.equal(world.scratch.log.filter(line => line.includes(token.slice(0, 40))).length, 0);
  });
});
