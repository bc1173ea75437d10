import assert from 'node:assert/strict';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Zone} from '../../../../shared/domain/records/zone.ts';
import {decideOrphans, orphansIn, orphansLeft} from '../../../../shared/domain/tick/orphans.ts';
import {sortNodes} from '../../../../shared/domain/worker/nodes.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {aTpu, at, aWorker, T0} from '../../../world/builders.ts';

const ZONE = 'us-central1-a';
const NAMES = [0, 1, 2].map(slot => `tpu-${ZONE}-${slot}`);
const [FIRST = ''] = NAMES;
const nodesOf = (names: string[], unreachable: string[] = []) =>
  sortNodes(
    names.map(name => aTpu({name})),
    {deployment: 'gleaner', unreachable, at_ms: T0},
  );

describe('nodes without a document', () => {
  const leftAlone = {limiter: {...OPEN, state: 'stopped', cause: 'person'}} as const;
  const since = (s: number) => ({orphans: {since_at: at(-s), unseen_since_at: null}});
  const cases: {
    name: string;
    zone?: Partial<Zone>;
    few?: true;
    unpaid?: true;
    unreachable?: true;
    held: number;
  }[] = [
    {name: 'go at once where they are few', few: true, held: 0},
    {name: 'wait where they are many', held: 3},
    {name: 'wait for an hour', zone: since(3600), held: 3},
    {name: 'go after an hour', zone: since(3601), held: 0},
    {name: 'go at once where no budget pays for their hour', unpaid: true, held: 0},
    {name: 'stay in a zone whose document is invalid', zone: leftAlone, few: true, held: 1},
    {name: 'go from that zone where no budget pays for them', zone: leftAlone, unpaid: true, held: 0},
    {name: 'stay in a zone that does not answer', few: true, unpaid: true, unreachable: true, held: 1},
  ];
  for (const {name, zone, few, unpaid, unreachable, held} of cases)
    it(name, () => {
      const names = few ? [FIRST] : NAMES;
      const nodes = nodesOf(names, unreachable ? [ZONE] : []);
      const facts = {zones: [{...newZone(ZONE, T0), ...zone}], isPaidFor: !unpaid};
      assert.equal(decideOrphans(nodes, names, facts, T0).held.size, held);
    });

  it('are those of later incarnations than the document too, but not those of earlier ones', () => {
    const isOrphan = (incarnation: number) =>
      orphansIn(nodesOf([FIRST]), new Map([[FIRST, aWorker({incarnation})]]), new Set()).length === 1;
    assert.deepEqual([1, 2, 3].map(isOrphan), [true, false, false]);
  });

  it('remain until their delete is done, and no node with an older document is one', () => {
    const left = (created_s: number) => {
      const worker = aWorker({phase: 'deleting', created_at: at(created_s)});
      return orphansLeft(nodesOf([FIRST]), new Map([[FIRST, worker]])).length;
    };
    assert.deepEqual([left(60), left(-60)], [1, 0]);
  });
});
