/** Who may send a request: each host speaks for itself, and each request has its answer to a sender that no document vouches for. */
import assert from 'node:assert/strict';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import {aWorker} from '../../world/builders.ts';
import {asHost, secretOf} from '../../world/bus.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {World} from '../../world/world.ts';

const OTHER_SECRET = 'f'.repeat(64);
const lease = {run: 'my-run', stream: '000', epoch: 1};
const ended = {exit_code: null, error: null};
const finish = {lease: {job: 'my-job', epoch: 1}, outcome: 'drained', cause: null, ran: null, ...ended};

/** Each request, and the answers to an incarnation that no document knows, and to one that is over. */
const REQUESTS = [
  {request: {action: 'hello', ticket: 'T'.repeat(43)}, unknown: '200 continue', over: '200 exit'},
  {request: {action: 'lease', loaded: null}, unknown: '200 wait', over: '200 exit'},
  {
    request: {action: 'heartbeat', phase: 'running', lease, progress: null},
    unknown: '200 drain',
    over: '200 exit',
  },
  {
    request: {action: 'heartbeat', phase: 'idle', lease: null, progress: null},
    unknown: '200 continue',
    over: '200 exit',
  },
  {
    request: {action: 'release', lease, outcome: 'drained', failure: null},
    unknown: '409 stop',
    over: '409 stop',
  },
  {
    request: {action: 'finish', ...finish, result: null, result_object: null, has_artifacts: false},
    unknown: '409 stop',
    over: '409 stop',
  },
  {request: {action: 'token', lease}, unknown: '200 none', over: '409 stop'},
  {request: {action: 'secrets', lease}, unknown: '409 stop', over: '409 stop'},
  {request: {action: 'source'}, unknown: '200 none', over: '200 none'},
  {request: {action: 'exec', exec: 'e1'}, unknown: '200 none', over: '200 none'},
  {
    request: {action: 'exec-end', exec: 'e1', outcome: 'exited', ...ended},
    unknown: '200 none',
    over: '200 none',
  },
];
/** Requests that an incarnation may still send while its node goes, because they give its work back. */
const GIVE_BACK = ['release', 'finish', 'token'];

async function aWorldWith(changes: Partial<Worker>): Promise<World> {
  const world = new World(ONE_SLOT);
  const worker = aWorker({name: A0, phase: 'working', work: 'my-run/000', epoch: 1, ...changes});
  await world.store.transaction(async tx => workerRecords.set(tx, worker));
  return world;
}

/** Sends the request, and checks that it changes no document. */
async function answerTo(world: World, body: object, secret: string): Promise<string> {
  const before = await wholeStore(world);
  const answer = await world.api({worker: A0, host: 0, ...body}, asHost(secret));
  assert.deepEqual(await wholeStore(world), before);
  return `${answer.status} ${answer.body.action}`;
}

for (const {request, unknown, over} of REQUESTS)
  describe(`a ${request.action} ${'lease' in request && request.lease === null ? 'without a lease ' : ''}from`, () => {
    for (const {name, sender} of [
      {name: 'another host', sender: {incarnation: 2, host: 1}},
      {name: 'an older incarnation', sender: {incarnation: 1, host: 0}},
      {name: 'a newer incarnation', sender: {incarnation: 3, host: 0}},
    ])
      it(`a host that names ${name} is refused`, async () => {
        const world = await aWorldWith({});
        assert.equal(await answerTo(world, {...request, ...sender}, secretOf(A0, 2)), '403 exit');
      });

    it('a sender without the secret of the host is refused', async () => {
      const world = await aWorldWith({});
      assert.equal(await answerTo(world, {...request, incarnation: 2}, OTHER_SECRET), '403 exit');
    });

    it('a host that its node does not have is refused', async () => {
      const world = await aWorldWith({});
      assert.equal(await answerTo(world, {...request, incarnation: 2, host: 1}, OTHER_SECRET), '403 exit');
    });

    it('a worker without a document, or newer than its document, is no error', async () => {
      const body = {...request, incarnation: 3};
      assert.equal(await answerTo(new World(ONE_SLOT), body, OTHER_SECRET), unknown);
      assert.equal(await answerTo(await aWorldWith({}), body, OTHER_SECRET), unknown);
    });

    it('an incarnation that was replaced, or whose node goes, ends', async () => {
      const body = {...request, incarnation: 2};
      assert.equal(await answerTo(await aWorldWith({incarnation: 3}), body, OTHER_SECRET), over);
      const leaving = await answerTo(await aWorldWith({phase: 'deleting'}), body, OTHER_SECRET);
      assert.equal(leaving, GIVE_BACK.includes(request.action) ? '403 exit' : over);
    });
  });
