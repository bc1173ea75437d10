import assert from 'node:assert/strict';
import {
  type ObjectRights,
  rightsOfExec,
  rightsOfHost,
  rightsOfJob,
  rightsOfStream,
} from '../../../../shared/domain/requests/object-rights.ts';

const BUCKETS = {bucket: 'bucket', logs_bucket: 'logs', checkpoints_bucket: 'checkpoints'};

/** True if the rights reach an object that the other rights name, or one below their prefixes. */
function reach(rights: ObjectRights[], others: ObjectRights[]): boolean {
  const objects = others.flatMap(({bucket, names = [], prefixes = []}) =>
    [...names, ...prefixes.map(prefix => `${prefix}x`)].map(name => ({bucket, name})),
  );
  return objects.some(({bucket, name}) =>
    rights.some(
      right =>
        right.bucket === bucket &&
        (right.names?.includes(name) || right.prefixes?.some(prefix => name.startsWith(prefix))),
    ),
  );
}

describe('the rights of a host', () => {
  const worker = (name: string, incarnation: number) => ({name, incarnation});
  const log = (name: string, incarnation: number) =>
    rightsOfHost(worker(name, incarnation), BUCKETS).filter(({bucket}) => bucket === 'logs');
  const stream = (run: string, id: string) => rightsOfStream({run, stream: id}, ['tiny'], BUCKETS);
  const model = (name: string) =>
    rightsOfStream({run: name, stream: '000'}, [`gs://bucket/models/${name}`], BUCKETS);
  const exec = (id: string, name: string, host: number) => rightsOfExec(id, {name}, host, BUCKETS);
  const cases: {name: string; rights: ObjectRights[]; longer: ObjectRights[]}[] = [
    {name: 'incarnation', rights: log('tpu-a-1', 1), longer: log('tpu-a-1', 10)},
    {name: 'worker', rights: log('tpu-a-1', 1), longer: log('tpu-a-10', 1)},
    {name: 'stream', rights: stream('my-run', '100'), longer: stream('my-run-2', '100')},
    {name: 'model', rights: model('gemma'), longer: model('gemma-2').filter(({may}) => may === 'read')},
    {
      name: 'job',
      rights: rightsOfJob({job: 'a', epoch: 1}, BUCKETS),
      longer: rightsOfJob({job: 'ab', epoch: 1}, BUCKETS),
    },
    {
      name: 'epoch',
      rights: rightsOfJob({job: 'a', epoch: 1}, BUCKETS).filter(({may}) => may === 'create'),
      longer: rightsOfJob({job: 'a', epoch: 10}, BUCKETS).filter(({may}) => may === 'create'),
    },
    {name: 'command', rights: exec('e', 'tpu-a-1', 1), longer: exec('e', 'tpu-a-1', 10)},
  ];
  for (const {name, rights, longer} of cases)
    it(`reach nothing of another ${name} whose name begins with its own`, () => {
      assert.deepEqual([reach(rights, rights), reach(rights, longer)], [true, false]);
    });
});
