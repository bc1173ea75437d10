import assert from 'node:assert/strict';
import {texts} from '../support/machine/home.ts';
import {until} from '../support/machine/until.ts';
import {DeploymentFaults, LABEL, lossesOf, ROUNDS, type Side, ZONE} from './deployment-faults.ts';
import {type Documents, SharedProject, type State, type TeamDeployment} from './shared-project.ts';
import type {Change} from './tpu-recorder.ts';

const SPEC = JSON.stringify({layers: '0-1', shard_size_gb: 0.0005});
/** Node of a third deployment, which has no functions here. */
const THIRD = `tpu-${ZONE}-9`;

type Pair = {project: SharedProject; faults: DeploymentFaults; north: Side; south: Side; sides: Side[]};

// Before a merge, pairs of simulated worlds share a project.
for (const isCalm of [true, false])
  describe(`Two deployments on one local cloud${isCalm ? '' : ', under faults'} @long`, () =>
    testDeployments(isCalm));

function testDeployments(isCalm: boolean): void {
  let pair: Pair;
  before(async () => {
    pair = await startPair();
  });
  after(() => pair?.project.remove());
  testRuns(() => pair, isCalm);
  testNodes(() => pair, isCalm);
  testBills(() => pair);
  testMessages(() => pair);
}

async function startPair(): Promise<Pair> {
  const project = await SharedProject.start([
    {name: 'gleaner', bucket: 'bucket-of-north'},
    {name: 'team-b', bucket: 'bucket-of-south'},
  ]);
  const [one, other] = project.deployments;
  assert.ok(one && other);
  // The pool `tpu` and its nodes are words of their own; the web page of an error has /tpu/ in its address.
  const foreign = /north|pools\/tpu|\/tpu-|(?<![\w/-])tpu(?!\w|-api)/;
  const north = {deployment: one, run: 'north', foreign: /team-b|south/, stray: 'leftover-of-north'};
  const south = {deployment: other, run: 'south', foreign, stray: 'leftover-of-south'};
  return {project, faults: new DeploymentFaults(project), north, south, sides: [north, south]};
}

function testRuns(pair: () => Pair, isCalm: boolean): void {
  /** Samples of a stream: each round of faults needs a stream at work. */
  const samples = isCalm ? 60 : 700 * ROUNDS;

  it('complete and verify their runs', async () => {
    const {faults, north, south, sides} = pair();
    if (!isCalm) await faults.refuseCreates();
    for (const {deployment, run} of sides) {
      await deployment.drop(`datasets/${run}/run.json`, SPEC);
      for (const index of [0, 1])
        await deployment.drop(`datasets/${run}/stream_00${index}.jsonl`, texts(samples, `${run}${index}`));
    }
    if (!isCalm) await faults.allowCreates(sides);
    for (const {deployment, stray} of sides) await faults.addNode(stray, deployment.name);
    await faults.addNode(THIRD, 'team-c');
    if (!isCalm) await faults.disturb(north, south);

    for (const side of sides) {
      const {deployment, run} = side;
      const ended = await deployment.runEnds(run);
      assert.equal(ended?.run.status, 'completed', JSON.stringify(ended));
      const report = await deployment.verify(run);
      assert.deepEqual([report.ok, report.stored_once], [true, 2 * samples], JSON.stringify(report));
      if (isCalm) continue;
      for (const loss of lossesOf(side, ROUNDS - 1))
        assert.ok(faults.nodes.includes(`${loss} ${run}`), faults.nodes.join());
    }
  });
}

function testNodes(pair: () => Pair, isCalm: boolean): void {
  it('create, label and delete only their own nodes', async () => {
    const {project, faults, north, south, sides} = pair();
    const {tpus} = await until(
      'the end of every node of both deployments',
      () => project.state(),
      (state: State) => state.tpus.length === 1,
    );
    assert.deepEqual([tpus[0]?.name, tpus[0]?.state], [THIRD, 'READY']);
    for (const {deployment, stray} of sides) {
      const creates = deployment.changes.filter(({verb}) => verb === 'create');
      assert.ok(creates.length > (isCalm ? 0 : 2), 'lost nodes are created again');
      for (const {name, labels} of creates)
        assert.deepEqual([labels['managed-by'], labels[LABEL]], ['gleaner', deployment.name], name);
      const own = [stray, ...creates.map(({name}) => name)];
      const deleted = deployment.changes.flatMap(({verb, name}) => (verb === 'delete' ? name : []));
      const foreign = deleted.filter(name => !own.includes(name));
      assert.deepEqual(foreign, [], `${deployment.name} deleted nodes of another owner`);
      assert.ok(deleted.includes(stray), `${deployment.name} deletes ${stray}`);
    }
    assert.deepEqual(
      names(north).filter(name => names(south).includes(name)),
      [],
    );
    const answered = sides.flatMap(({deployment}) => deployment.changes.map(({operation}) => operation));
    const unseen = project
      .operations()
      .filter(({name}) => !answered.includes(name) && !faults.asked.includes(name));
    assert.deepEqual(unseen, [], 'the recorders saw every operation of Cloud TPU');
  });

  it('have no document that names the other deployment', () => {
    const {faults, north, south} = pair();
    assert.ok(isCalm || 'runs/south' in faults.lost, 'the lost store had documents');
    const stores = [
      [north.deployment.documents(), north.foreign],
      [south.deployment.documents(), south.foreign],
      [faults.lost, south.foreign],
    ] as const;
    for (const [documents, foreign] of stores)
      for (const [path, data] of Object.entries(documents))
        assert.doesNotMatch(`${path} ${JSON.stringify(data)}`, foreign);
  });
}

function testBills(pair: () => Pair): void {
  it('bill their own nodes alone', () => {
    const {project, sides} = pair();
    for (const side of sides) {
      const {run, deployment} = side;
      const documents = deployment.documents();
      const under = (start: string) => Object.entries(documents).filter(([path]) => path.startsWith(start));
      const attempts = under('workers/').filter(([path]) => path.includes('/attempts/'));
      for (const [path, {worker, costs}] of attempts) {
        assert.ok(names(side).includes(String(worker)), path);
        assert.ok(
          Object.keys(costs as object).every(payer => payer === run),
          path,
        );
      }
      const ofRun = attempts.reduce((total, [, {cost_usd}]) => total + Number(cost_usd), 0);
      const ofPool = Number(under('pools/')[0]?.[1].spent_usd);
      const {months} = documents['system/spending'] as {months: Record<string, number>};
      const ofMonths = Object.values(months).reduce((total, usd) => total + usd, 0);
      assert.ok(isSame(Number(documents[`runs/${run}`]?.spent_usd), ofRun), `${run} pays for its workers`);
      assert.ok(isSame(ofPool, ofMonths), `${ofPool} of the pool is ${ofMonths} of the months`);
      // The orphan of a lost store costs its pool, and no run.
      const hours = project.hoursOf(names(side));
      const [[, {usd_per_hour}] = ['', {usd_per_hour: null}]] = under('workers/').filter(
        ([path]) => !path.includes('/attempts/'),
      );
      assert.ok(ofRun > 0 && ofPool >= ofRun - 1e-9, `${ofPool} of the pool has ${ofRun} of ${run}`);
      assert.ok(ofPool <= hours * Number(usd_per_hour), `${ofPool} is more than ${hours} hours cost`);
    }
  });
}

function testMessages(pair: () => Pair): void {
  it('ignore the messages, the job and the objects of the other deployment', async () => {
    const {project, north, south} = pair();
    await project.cloud.fault('clear', 'all');
    for (const [{deployment}, other] of [
      [north, south],
      [south, north],
    ] as const) {
      await project.call('POST', `${other.deployment.job}:pause`);
      const before = await whenIdle(project, other.deployment);
      const ids = [
        await deployment.publish({action: 'scale', workers_per_zone: 2, budget_usd: 1}),
        await deployment.publish({action: 'stop', run: other.run}),
        await deployment.publish({action: 'delete', worker: names(other)[0] ?? ''}),
        await deployment.publish({action: 'rebuild'}),
      ];
      await deployment.drop(`datasets/${other.run}-again/stream_000.jsonl`, '');
      const outcomes = await until(
        `the messages of ${deployment.name}`,
        async () => ids.map(id => deployment.documents()[`control/${id}`]?.outcome),
        found => found.every(outcome => outcome !== undefined),
      );
      assert.deepEqual(outcomes, ['applied', 'rejected', 'rejected', 'applied']);
      await until(
        `the rebuild of ${deployment.name}, and its new run`,
        async () => deployment.documents(),
        found => found['tasks/rebuild']?.status === 'done' && `runs/${other.run}-again` in found,
      );
      assert.deepEqual(await whenIdle(project, other.deployment), before);
      await project.call('POST', `${other.deployment.job}:resume`);
    }
  });
}

/** Documents of a deployment whose job is paused, when no event is left. */
async function whenIdle(project: SharedProject, deployment: TeamDeployment): Promise<Documents> {
  let last = '';
  const now = async () => {
    const {deliveries_pending: pending} = await project.state();
    return {pending, text: JSON.stringify(deployment.documents())};
  };
  await until(`the rest of ${deployment.name}`, now, ({pending, text}) => {
    const isStill = pending === 0 && text === last;
    last = text;
    return isStill;
  });
  return deployment.documents();
}

function names({deployment}: Side): string[] {
  return deployment.changes.map(({name}: Change) => name);
}

function isSame(one: number, other: number): boolean {
  return Math.abs(one - other) < 1e-9;
}
