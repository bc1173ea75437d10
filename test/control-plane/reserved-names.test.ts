/** Ids that no document can have, at every entry of the control plane. */
import assert from 'node:assert/strict';
import {jobId, poolName} from '../../shared/contracts/messages/job-schemas.ts';
import {runId, streamText, workerNameText} from '../../shared/contracts/messages/schemas.ts';
import {workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {splitDocumentPath} from '../../shared/ports/document-limits.ts';
import {aWorker} from '../world/builders.ts';
import {A0, ONE_SLOT} from '../world/scenes/places.ts';
import {wholeStore} from '../world/scenes/whole-store.ts';
import {World} from '../world/world.ts';

const RESERVED = ['__proto__', '__x__', '____', `__${'0'.repeat(96)}__`];
const OTHERS = [
  '.',
  '..',
  '',
  'a/b',
  '../x',
  'a\0',
  'é',
  '\ud800',
  'x'.repeat(1501),
  '__x',
  'x__',
  '__',
  '_-_',
  '000',
];
const PATTERNS = {job: jobId, run: runId, pool: poolName, stream: streamText, worker: workerNameText};
const lease = (job: string) => ({job, epoch: 1});

describe('an id that no document can have', () => {
  for (const [kind, pattern] of Object.entries(PATTERNS))
    it(`has not the form of a ${kind}`, () => {
      for (const id of [...RESERVED, ...OTHERS, `${A0}__`, `__${A0}__`])
        if (pattern.safeParse(id).success) assert.doesNotThrow(() => splitDocumentPath(`all/${id}`));
      assert.ok(RESERVED.every(id => !pattern.safeParse(id).success));
    });

  const MESSAGES =
    'submit job, cancel job, retry job, start run, stop run, rebuild run, retry run, pause run';
  for (const words of `${MESSAGES}, pause pool, pool pool, keep pool, recreate worker, delete worker`.split(
    ', ',
  ))
    it(`is rejected with a reason in a message: ${words}`, async () => {
      const [action, key = ''] = words.split(' ');
      for (const id of RESERVED) {
        const world = new World(ONE_SLOT);
        const sent = world.control({action, [key]: id});
        assert.equal(await world.deliverNext('control'), true);
        const {outcome, reason} = (await world.store.get(`control/${sent}`)) ?? {};
        assert.equal(outcome, 'rejected');
        assert.match(String(reason), new RegExp(`${key}: an? (job id|run id|pool name|worker name)\\b`));
      }
    });

  it('is rejected with a reason as the id of a command on hosts', async () => {
    for (const id of RESERVED) {
      const world = new World(ONE_SLOT);
      const sent = world.exec({exec: id, target: 'tpu', argv: ['hostname']});
      assert.equal(await world.deliverNext('exec'), true);
      assert.equal((await world.store.get(`control/${sent}`))?.outcome, 'rejected');
    }
  });

  for (const request of [
    {action: 'token', lease: lease('')},
    {action: 'token', lease: {exec: ''}},
    {action: 'heartbeat', phase: 'running', lease: lease(''), progress: null},
    {
      ...{action: 'finish', lease: lease(''), outcome: 'drained', cause: null, error: null, exit_code: null},
      ...{result: null, result_object: null, has_artifacts: false, ran: null},
    },
    {action: 'exec', exec: ''},
    {action: 'exec-end', exec: '', outcome: 'exited', exit_code: 0, error: null},
  ])
    it(`is refused in a request to worker-api, which changes nothing: ${request.action}`, async () => {
      const world = new World(ONE_SLOT);
      await world.store.transaction(async tx => workerRecords.set(tx, aWorker({name: A0, phase: 'working'})));
      const before = await wholeStore(world);
      for (const id of RESERVED) {
        const body = JSON.parse(JSON.stringify(request).replace('""', JSON.stringify(id)));
        assert.equal((await world.api({worker: A0, incarnation: 2, host: 0, ...body})).status, 400);
      }
      assert.deepEqual(await wholeStore(world), before);
    });
});
