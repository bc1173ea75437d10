/** The boundary of each kind of token, as the token service and Cloud Storage of the local cloud read it. */
import assert from 'node:assert/strict';
import {boundaryOptions, leaves, type Right} from '../../../emulator/http/boundary.ts';
import {
  type ObjectRights,
  rightsOfExec,
  rightsOfHost,
  rightsOfJob,
  rightsOfJobProcess,
  rightsOfStream,
} from '../../../shared/domain/requests/object-rights.ts';
import {ruleOf} from '../../../shared/google/object-tokens.ts';

const PLACE = {bucket: 'data', logs_bucket: 'data-logs', checkpoints_bucket: 'kept'};
const WORKER = {name: 'tpu-us-central1-a-1', incarnation: 2};
const ALL: Right[] = ['create', 'delete', 'get', 'list', 'move', 'update'];
const CREATE: Right[] = ['create', 'get', 'list'];

const CASES: {
  token: string;
  rights: ObjectRights[];
  names: [name: string, rights: Right[], bucket?: string][];
}[] = [
  {
    token: 'a job',
    rights: rightsOfJob({job: 'a', epoch: 1}, PLACE),
    names: [
      ['jobs/a/epoch_1/output/000001.txt', CREATE],
      ['jobs/a/epoch_1', []],
      ['jobs/a/epoch_10/output/000001.txt', []],
      ['jobs/ab/epoch_1/output/000001.txt', []],
      ['jobs/', []],
      ['jobs/a/epoch_1/output/000001.txt', [], 'data-logs'],
    ],
  },
  {
    token: 'the process of a job',
    rights: rightsOfJobProcess(
      {job: 'a', inputs: ['run:my-run', 'gs://data/models/m', 'gs://other/models/m', 'gs://data/jobs/b']},
      PLACE,
    ),
    names: [
      ['checkpoints/a/own/step/1', ['create', 'delete', 'get', 'list', 'move', 'update'], 'kept'],
      ['checkpoints/a/epoch_1/host_0/manifest.json', [], 'kept'],
      ['checkpoints/ab/own/x', [], 'kept'],
      ['activations/my-run/tpu_0/shard_0001.safetensors', ['get', 'list']],
      ['activations/my-run', ['get']],
      ['activations/my-run-2/manifest.json', []],
      ['models/m/config.json', ['get', 'list']],
      ['jobs/b/epoch_1/output/000001.txt', []],
    ],
  },
  {
    token: 'a command',
    rights: rightsOfExec('e', WORKER, 0, PLACE),
    names: [
      [`execs/e/${WORKER.name}/0/000001.txt`, CREATE],
      [`execs/e/${WORKER.name}/01/000001.txt`, []],
      ['execs/e/tpu-us-central1-a-10/0/000001.txt', []],
    ],
  },
  {
    token: 'an incarnation',
    rights: rightsOfHost(WORKER, PLACE),
    names: [
      [`logs/${WORKER.name}/2.log`, ['create', 'delete', 'get', 'move', 'update'], 'data-logs'],
      [`logs/${WORKER.name}/2.1.log`, ['create', 'delete', 'get', 'move', 'update'], 'data-logs'],
      [`logs/${WORKER.name}/20.log`, [], 'data-logs'],
      ['code/abc.tar.gz', ['get']],
    ],
  },
  {
    token: 'a stream of the default run',
    rights: rightsOfStream({run: 'default', stream: '001'}, ['gs://data/models/a"b\\'], PLACE),
    names: [
      ['activations/tpu_1/shard_0001.safetensors', CREATE],
      ['partials/tpu_1/0001.jsonl', CREATE],
      ['partials/tpu_2/0001.jsonl', []],
      ['activations/model.json', ['create', 'get']],
      ['activations/manifest.json', []],
      ['activations/other/tpu_1/shard_0001.safetensors', []],
      ['datasets/stream_001.jsonl.gz', ['get']],
      ['datasets/stream_001.jsonl.gz.txt', []],
      ['models/a"b\\/config.json', ['get', 'list']],
      ['models/a/config.json', []],
    ],
  },
];

describe('The token of', () => {
  for (const {token, rights, names} of CASES)
    for (const [name, expected, bucket = 'data'] of names)
      it(`${token} has ${expected.join(', ') || 'no right'} at ${name} in ${bucket}`, () => {
        const {accessBoundary} = boundaryOptions.parse({
          accessBoundary: {accessBoundaryRules: rights.map(ruleOf)},
        });
        const left = ALL.filter(right => leaves(accessBoundary, right, bucket, name));
        assert.deepEqual(left, expected);
      });
});
