import assert from 'node:assert/strict';
import fc from 'fast-check';
import triggers from '../../../functions/triggers.json' with {type: 'json'};
import {
  DEPLOYMENT,
  isDeployment,
  isLabelled,
  labelsOf,
  nameIn,
  poolNameProblem,
  poolOf,
  tickJobOf,
} from '../../../shared/domain/deployment.ts';
import {MOST_NAME_CHARS, parseWorkerName, workerName} from '../../../shared/domain/names.ts';

const TOPICS = ['objects', 'control', 'tpu', 'tick', 'tasks', 'dead'];
const FUNCTIONS = triggers.functions.map(({name}) => name);
/** Longest zone of Google, in the form of an AI zone. */
const LONGEST_ZONE = 'northamerica-northeast1-ai1a';
const deployment = fc.stringMatching(DEPLOYMENT);

describe('deployment', () => {
  it('the default deployment has plain names, and every other one names with its own', () => {
    assert.deepEqual(
      [poolOf('gleaner'), nameIn('gleaner', 'tick'), tickJobOf('gleaner')],
      ['tpu', 'tick', 'gleaner-tick'],
    );
    assert.deepEqual(
      [poolOf('team-a'), nameIn('team-a', 'tick'), tickJobOf('team-a')],
      ['team-a-tpu', 'team-a-tick', 'team-a-tick'],
    );
  });

  it('two deployments share no topic, no pool and no node', () => {
    fc.assert(
      fc.property(deployment, deployment, (one, other) => {
        fc.pre(one !== other);
        const topicsOf = (name: string) => TOPICS.map(topic => nameIn(name, topic));
        assert.equal(new Set([...topicsOf(one), ...topicsOf(other)]).size, 2 * TOPICS.length);
        assert.notEqual(poolOf(one), poolOf(other));
        assert.ok(!isLabelled(labelsOf(one), other));
      }),
    );
  });

  it('a pool has the name of its whole deployment before a dash', () => {
    const isRefused = (pool: string) => poolNameProblem(pool, 'team') !== undefined;
    assert.deepEqual(['team-big', 'team2-big', 'teambig', 'big'].map(isRefused), [false, true, true, true]);
  });

  it('two deployments share no function and no subscription, also where one name begins with the other', () => {
    const longer = fc
      .tuple(deployment, fc.constantFrom(...FUNCTIONS, ...TOPICS, 'a', 'worker', 'on'))
      .map(([one, end]) => [one, `${one}-${end}`] as const)
      .filter(([, other]) => isDeployment(other));
    fc.assert(
      fc.property(fc.oneof(longer, fc.tuple(deployment, deployment)), ([one, other]) => {
        fc.pre(one !== other);
        // A local cloud has the plain names of the default deployment, and Google Cloud has none.
        for (const nameOf of [nameIn, (own: string, name: string) => `${own}-${name}`]) {
          const namesOf = (own: string) => FUNCTIONS.map(name => nameOf(own, name));
          assert.equal(new Set([...namesOf(one), ...namesOf(other)]).size, 2 * FUNCTIONS.length);
        }
      }),
    );
  });

  it('every name of a deployment fits into the name of a node in the longest zone', () => {
    fc.assert(
      fc.property(deployment, name => {
        const slot = {pool: poolOf(name), zone: LONGEST_ZONE, slot: 99_999};
        assert.ok(isDeployment(name) && workerName(slot).length <= MOST_NAME_CHARS);
        assert.deepEqual(parseWorkerName(workerName(slot)), slot);
      }),
    );
  });

  it('a node of another owner, or without the label of a deployment, belongs to none', () => {
    assert.ok(!isLabelled({'managed-by': 'gleaner'}, 'gleaner'));
    assert.ok(!isLabelled({...labelsOf('gleaner'), 'managed-by': 'another-owner'}, 'gleaner'));
  });
});
