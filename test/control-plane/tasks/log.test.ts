import assert from 'node:assert/strict';
import {duringCall, jsonLog} from '../../../shared/control-plane/calls/log.ts';
import {recordEvent} from '../../../shared/control-plane/documents/event-log.ts';
import {at, T0} from '../../world/builders.ts';
import {attemptsOf, aWorkingWorld, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';

const LABELS = 'logging.googleapis.com/labels';

describe('the log', () => {
  const lines: string[] = [];
  const log = jsonLog(
    line => void lines.push(line),
    () => T0,
    'my-project',
  );
  const written = () => JSON.parse(lines.splice(0).join(''));

  it('writes each entry as one JSON line with searchable labels', () => {
    log('WARNING', 'a lease\nran out', {
      run: 'my-run',
      stream: '007',
      epoch: 3,
      worker: undefined,
      left_s: 2,
    });
    assert.equal(lines.length, 1);
    assert.equal(lines[0]?.indexOf('\n'), (lines[0]?.length ?? 0) - 1);
    assert.deepEqual(written(), {
      severity: 'WARNING',
      time: at(0),
      message: 'a lease\nran out',
      [LABELS]: {run: 'my-run', stream: '007', epoch: '3'},
      left_s: 2,
    });
    log('INFO', 'nothing');
    assert.deepEqual(written(), {severity: 'INFO', time: at(0), message: 'nothing'});
  });

  it('writes any text as one printable line', () => {
    const message = '\u001b[2J\u009b2J\u202e\u2028\u2029 red';
    log('ERROR', message);
    assert.match(lines[0] ?? '', /^[\x20-\x7e]+\n$/);
    assert.equal(written().message, message);
  });

  it('labels a line with its function, its message and its trace', async () => {
    const [trace, span] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'];
    const call = {function: 'on-control', message_id: '17', traceparent: `00-${trace}-${span}-01`};
    await duringCall(call, async () => {
      await Promise.resolve();
      log('ERROR', 'no', {run: 'my-run'});
    });
    assert.deepEqual(written(), {
      severity: 'ERROR',
      time: at(0),
      message: 'no',
      [LABELS]: {function: 'on-control', message_id: '17', run: 'my-run'},
      'logging.googleapis.com/trace': `projects/my-project/traces/${trace}`,
      'logging.googleapis.com/spanId': span,
      'logging.googleapis.com/trace_sampled': true,
    });
    await duringCall({function: 'on-tick', traceparent: 'not one'}, async () => log('INFO', 'yes'));
    assert.deepEqual(written()[LABELS], {function: 'on-tick'});
    log('INFO', 'outside');
    assert.equal(written()[LABELS], undefined);
  });

  it('keeps the labels of two simultaneous calls apart', async () => {
    const call = (message_id: string) =>
      duringCall({function: 'on-object', message_id}, async () => {
        await new Promise(resolve => setImmediate(resolve));
        log('INFO', message_id);
      });
    await Promise.all([call('1'), call('2')]);
    for (const line of lines.splice(0)) {
      const entry = JSON.parse(line);
      assert.equal(entry[LABELS].message_id, entry.message);
    }
  });
});

describe('the timeline', () => {
  it('has the same ids, and what is kept of a run goes by itself one day', async () => {
    const world = await aWorkingWorld();
    const id = await world.order({action: 'configure', run: 'my-run', priority: 1});
    world.tpus.node(A0).state = 'PREEMPTED';
    await world.untilAsleep();
    const events = (await world.store.query('events', {order_by: {field: 'at'}})).map(({data}) => data);
    const one = (text: RegExp) =>
      events.find(event => text.test(String(event.text))) ?? assert.fail(String(text));
    assert.equal(one(/Control message applied/).message_id, id);
    const granted = one(/works on my-run\/000 from sample 0/);
    assert.deepEqual([granted.run, granted.stream, granted.worker, granted.epoch], ['my-run', '000', A0, 1]);
    const lost = one(/is lost: it was preempted/);
    assert.deepEqual([lost.run, lost.stream, lost.worker, lost.epoch], ['my-run', '000', A0, 1]);
    const attempts = await attemptsOf(world);
    assert.equal(attempts.length, 2);
    assert.equal(attempts[0]?.cause_kind, 'taken');
    const kept = await world.store.query('control');
    for (const {expire_at, at, ended_at} of [...events, ...attempts, ...kept.map(({data}) => data)])
      assert.ok(String(expire_at) > String(at ?? ended_at), JSON.stringify(expire_at));
  });

  it('has an event that repeats within its time once, with its last time', async () => {
    const {deps, store} = aWorldWithAStream(1);
    const record = (text: string, now: number, since: number) =>
      deps.store.transaction(async tx => recordEvent(tx, {kind: 'worker', worker: A0, text}, now, since));
    await record('a claim', T0 + 1000, T0);
    await record('a claim', T0 + 2000, T0);
    await record('a claim', T0 + 4_000_000, T0 + 3_600_000);
    await record('another claim', T0 + 2000, T0);
    const events = (await store.query('events', {order_by: {field: 'at'}})).map(({data}) => data);
    const told = events.map(({text, at}) => [text, Date.parse(String(at)) - T0]);
    assert.deepEqual(told.slice(0, 2).sort(), [
      ['a claim', 2000],
      ['another claim', 2000],
    ]);
    assert.deepEqual(told.slice(2), [['a claim', 4_000_000]]);
  });

  it('says that a run is active again, and why', async () => {
    const world = aWorldWithAStream(2);
    await world.untilAsleep();
    world.drop('my-run', 1, someLines(2));
    await world.untilAsleep();
    assert.ok((await world.timeline('run')).includes('Run my-run is active again: stream 001 came'));
  });
});
