import assert from 'node:assert/strict';
import {runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {secretHash} from '../../shared/control-plane/worker-api/authenticate.ts';
import {iso} from '../../shared/domain/time.ts';
import {aRun} from '../world/builders.ts';
import {FORGER, from, LEASE, SECRETS, TwoWorkers, VICTIM} from './two-workers.ts';

const crash = {kind: 'infrastructure', reason: 'x'};

/** Requests that a forger sends in the name of the victim. */
const REQUESTS = [
  {name: 'a lease', body: {action: 'lease', loaded: null}},
  {name: 'a heartbeat', body: {action: 'heartbeat', phase: 'running', lease: LEASE, progress: null}},
  {
    name: 'a heartbeat of a restart',
    body: {action: 'heartbeat', phase: 'setup', lease: null, progress: null},
  },
  {name: 'a release', body: {action: 'release', lease: LEASE, outcome: 'drained', failure: null}},
  {
    name: 'a release for a failure of the stream',
    body: {action: 'release', lease: LEASE, outcome: 'failed', failure: {kind: 'stream', reason: 'x'}},
  },
  {
    name: 'a release for a failure of the machine',
    body: {action: 'release', lease: LEASE, outcome: 'failed', failure: crash},
  },
  {name: 'a hello with the ticket of the forger', body: {action: 'hello'}},
  {
    name: 'a heartbeat at a job',
    body: {action: 'heartbeat', phase: 'running', lease: {job: 'my-job', epoch: 1}, progress: null},
  },
  {
    name: 'the end of a job',
    body: {
      ...{action: 'finish', lease: {job: 'my-job', epoch: 1}, outcome: 'completed', cause: null},
      ...{error: null, exit_code: 0, result: 'x', result_object: null, has_artifacts: false, ran: null},
    },
  },
  {name: 'a request for a token', body: {action: 'token', lease: LEASE}},
  {name: 'a question for the source of its pool', body: {action: 'source'}},
  {name: 'a question for a command', body: {action: 'exec', exec: 'my-command'}},
  {
    name: 'the end of a command',
    body: {action: 'exec-end', exec: 'my-command', outcome: 'exited', exit_code: 0, error: null},
  },
];

describe('worker-api at its local address, with a valid token', () => {
  const world = new TwoWorkers();
  before(() => world.start());
  beforeEach(() => world.reset());
  after(() => world.scratch.end());

  const names = [
    {name: 'another worker', sender: from(VICTIM.name, 2)},
    {name: 'another host of another worker', sender: from(VICTIM.name, 2, 1)},
    {name: 'another host of the forger itself', sender: from(FORGER.name, 2, 1)},
  ];
  for (const {name, body} of REQUESTS)
    for (const {name: whose, sender} of names)
      it(`refuses ${name} in the name of ${whose}, and changes no document`, async () => {
        const before = world.documents();
        const asked = {...body, ...sender, ticket: world.ticketFor(FORGER)};
        const lines = world.scratch.log.length;
        for (const secret of [SECRETS.forger, '', secretHash(SECRETS.victim)]) {
          const {status, text} = await world.ask(asked, {secret});
          assert.equal(status, 403, text);
        }
        assert.equal((await world.ask(asked)).status, 403);
        assert.deepEqual(world.documents(), before);
        const errors = world.scratch.log.slice(lines).filter(line => line.includes('"severity":"ERROR"'));
        assert.ok(errors.some(line => line.includes('Refused to')));
      });

  for (const incarnation of [1, 3])
    it(`changes no document for a request of incarnation ${incarnation} of a worker in its second`, async () => {
      const before = world.documents();
      for (const {body} of REQUESTS) {
        const asked = {...body, ...from(VICTIM.name, incarnation), ticket: world.ticketFor(FORGER)};
        const {status, text} = await world.ask(asked, {secret: SECRETS.forger});
        assert.ok([200, 409].includes(status), `${status} ${text}`);
        assert.doesNotMatch(text, /"work"/);
      }
      assert.deepEqual(world.documents(), before);
    });

  for (const {name, body} of REQUESTS.filter(each => each.body.action === 'release'))
    it(`refuses ${name} with the forger's own name and the victim's lease, and changes no document`, async () => {
      // A release by the holder would request the totals of an ended run.
      await world.write(async tx => runRecords.set(tx, aRun({status: 'stopped'})));
      const before = world.documents();
      const {status, text} = await world.ask({...body, ...from(FORGER.name, 2)}, {secret: SECRETS.forger});
      assert.equal(status, 409, text);
      assert.deepEqual(world.documents(), before);
    });

  it("stops the forger that claims the victim's lease in its own name, and changes its document alone", async () => {
    const others = () =>
      world.documents().filter(row => !JSON.stringify(row).includes(`"id":"${FORGER.name}"`));
    const before = others();
    const beat = {action: 'heartbeat', phase: 'running', lease: LEASE, progress: null};
    const {status, text} = await world.ask({...beat, ...from(FORGER.name, 2)}, {secret: SECRETS.forger});
    assert.deepEqual([status, JSON.parse(text).action], [200, 'stop'], text);
    assert.deepEqual(others(), before);
  });

  it('changes no document for a worker that no document knows', async () => {
    const before = world.documents();
    for (const {body} of REQUESTS) {
      const asked = {...body, ...from('tpu-us-central1-a-7', 1), ticket: world.ticketFor(FORGER)};
      const {status, text} = await world.ask(asked, {secret: SECRETS.forger});
      assert.ok([200, 409].includes(status), `${status} ${text}`);
      assert.doesNotMatch(text, /"work"/);
    }
    assert.deepEqual(world.documents(), before);
  });

  it('refuses a second secret for a host also with the right ticket, and records that as one event', async () => {
    const before = world.documents();
    const hello = {action: 'hello', ...from(VICTIM.name, 2), ticket: world.ticketFor(VICTIM)};
    for (let claim = 0; claim < 3; claim++)
      assert.equal((await world.ask(hello, {secret: SECRETS.forger})).status, 403);
    const known = new Set(before.map(row => JSON.stringify(row)));
    const added = world.documents().filter(row => !known.has(JSON.stringify(row)));
    assert.equal(added.length, 1);
    assert.match(JSON.stringify(added), /Refused to bind a second secret to host 0 of tpu-us-central1-a-0/);
    const again = await world.ask(hello, {secret: SECRETS.victim});
    assert.equal(again.status, 200, 'the host itself is welcome');
  });

  it('does what the victim itself asks for', async () => {
    const before = world.documents();
    const beat = {
      action: 'heartbeat',
      ...from(VICTIM.name, 2),
      phase: 'running',
      lease: LEASE,
      progress: null,
    };
    const {status, text} = await world.ask(beat, {secret: SECRETS.victim});
    assert.deepEqual([status, JSON.parse(text).action], [200, 'continue'], text);
    assert.notDeepEqual(world.documents(), before);
  });

  it('binds a host only with the ticket of its incarnation', async () => {
    await world.write(async tx => workerRecords.set(tx, {...VICTIM, host_secrets: {}}));
    const secret = SECRETS.victim;
    const hello = {action: 'hello', ...from(VICTIM.name, 2)};
    const lives = [{incarnation: 1}, {incarnation: 3}, {born_at: iso(Date.now())}, {name: FORGER.name}];
    for (const life of lives) {
      const ticket = world.ticketFor({...VICTIM, ...life});
      assert.equal((await world.ask({...hello, ticket}, {secret})).status, 403, JSON.stringify(life));
    }
    const foreign = world.ticketFor(VICTIM, 'other');
    assert.equal((await world.ask({...hello, ticket: foreign}, {secret})).status, 403, 'of a deployment');
    assert.equal((await world.ask({...hello, ticket: world.ticketFor(VICTIM)}, {secret})).status, 200);
  });
});
