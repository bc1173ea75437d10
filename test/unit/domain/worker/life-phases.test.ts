import assert from 'node:assert/strict';
import {NO_WORK, type Worker} from '../../../../shared/domain/records/worker.ts';
import {heardFrom} from '../../../../shared/domain/requests/heard-from.ts';
import {type LifePhases, phasesAtEnd} from '../../../../shared/domain/worker/life-phases.ts';
import type {Death} from '../../../../shared/domain/worker/liveness.ts';
import {at, aWorker, T0} from '../../../world/builders.ts';

const PREEMPTED: Death = {kind: 'taken', cause: 'it was preempted'};
const READY = aWorker({
  phase: 'booting',
  born_at: at(-90),
  ready_at: at(0),
  usd_per_hour: 3.6,
  agent_at: null,
});

type Word = {s: number; activity: string; step?: string; tokens?: number; shards?: number; job?: boolean};

/** The worker after words at these seconds. Its stream is my-run/000 from `loading` on. */
function lived(words: readonly Word[]): Worker {
  return words.reduce<Worker>((worker, {s, activity, step, tokens = 0, shards = 0, job}) => {
    const hasWork = activity !== 'setup' && activity !== 'idle';
    const work = job ? 'job:one' : 'my-run/000';
    const progress = {...NO_WORK, tokens_done: tokens, shards_done: shards, work: hasWork ? work : null};
    return heardFrom(worker, {...progress, activity, step}, T0 + s * 1000);
  }, READY);
}

const seconds = (phases: LifePhases) =>
  Object.fromEntries(Object.entries(phases).map(([name, phase]) => [name, phase.seconds]));

const LIFE: Word[] = [
  {s: 40, activity: 'setup', step: 'environment'},
  {s: 70, activity: 'loading'},
  {s: 100, activity: 'compiling'},
  {s: 160, activity: 'running'},
  {s: 220, activity: 'uploading', tokens: 500},
  {s: 230, activity: 'running', tokens: 500, shards: 1},
  {s: 290, activity: 'running', tokens: 900, shards: 1},
];

describe('The phases of an attempt', () => {
  it('add up to its life, and a death loses the work since the last stored shard', () => {
    const phases = phasesAtEnd(lived(LIFE), PREEMPTED, T0 + 300_000);
    const {create_wait: wait, ...paid} = seconds(phases);
    assert.deepEqual(paid, {
      boot: 40,
      environment: 30,
      weights: 30,
      compile: 60,
      extract: 60,
      upload: 10,
      lost: 70,
    });
    assert.equal(wait, 90);
    assert.equal(
      Object.values(paid).reduce((sum, value) => sum + value, 0),
      300,
    );
    assert.deepEqual([phases.create_wait?.usd, phases.lost?.usd], [0, 0.07]);
  });

  it('lose nothing if there is no work', () => {
    const ended = lived([...LIFE, {s: 300, activity: 'idle'}]);
    assert.equal(phasesAtEnd(ended, PREEMPTED, T0 + 310_000).lost, undefined);
    assert.equal(phasesAtEnd(lived(LIFE), undefined, T0 + 300_000).lost, undefined);
  });

  it('name the time of a job, and a node that never came', () => {
    const job = lived([
      {s: 40, activity: 'idle'},
      {s: 50, activity: 'running', job: true},
      {s: 80, activity: 'running', job: true},
    ]);
    assert.equal(seconds(phasesAtEnd(job, undefined, T0 + 80_000)).job, 30);
    assert.deepEqual(seconds(phasesAtEnd({...READY, ready_at: null}, PREEMPTED, T0)), {create_wait: 90});
  });

  it('count the tokens of heartbeats, and those without a stored shard', () => {
    const {computed_tokens, unstored_tokens} = lived(LIFE);
    assert.deepEqual([computed_tokens, unstored_tokens], [900, 400]);
  });
});
