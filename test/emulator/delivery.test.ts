import assert from 'node:assert/strict';
import {join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {cloudState, publish, put, Scratch, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

type Info = {
  deliveries_pending: number;
  dead_letters: {id: string; topic: string; last_error: string; attempts: number}[];
};

describe('The delivery of events to functions', () => {
  const scratch = new Scratch(afterEach);

  const info = (cloud: LocalCloud) => cloudState<Info>(cloud);
  const idle = (cloud: LocalCloud) =>
    until('every event was delivered', async () => (await info(cloud)).deliveries_pending === 0);

  it('repeats an event that a function refuses, and delivers other events between the attempts', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const [refused] = await publish(cloud, 'control', '"refuse"');
    const [taken] = await publish(cloud, 'control', '"take"');
    await until(
      'the refused event arrived three times',
      () => seen().filter(event => event.id === refused).length >= 3,
    );
    assert.equal(seen().filter(event => event.id === taken).length, 1);
    assert.equal((await info(cloud)).deliveries_pending, 1);
    const database = new DatabaseSync(join(cloud.dir, 'cloud.db'), {readOnly: true});
    const row = database.prepare('SELECT attempts FROM bus_messages WHERE id = ?').get(refused ?? '') as {
      attempts: number;
    };
    database.close();
    assert.ok(row.attempts >= 2);
  });

  it('makes a message a dead letter after its last attempt, with the error of the function', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const [id] = await publish(cloud, 'control', '"refuse"');
    const database = new DatabaseSync(join(cloud.dir, 'cloud.db'));
    await until('the first attempts', () => seen().length >= 2);
    const {dead_letters} = await until('the dead letter', async () => {
      // An attempt under way writes its own number afterwards.
      database.exec('UPDATE bus_messages SET attempts = 19, due_at = 0 WHERE attempts < 19');
      const found = await info(cloud);
      return found.dead_letters.length > 0 ? found : undefined;
    });
    database.close();
    const [letter] = dead_letters;
    assert.deepEqual([letter?.id, letter?.topic, letter?.attempts], [id, 'gleaner-on-control', 20]);
    assert.match(letter?.last_error ?? '', /^on-control answered 500/);
  });

  it('repeats an event whose function ends its host', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const [first] = await publish(cloud, 'control', '"crash"');
    await until('the function ran in two hosts', () => {
      const pids = seen()
        .filter(event => event.id === first)
        .map(event => event.pid);
      return new Set(pids).size >= 2;
    });
    const [next] = await publish(cloud, 'tpu', '"after"');
    await until('the next event arrived', () => seen().some(event => event.id === next));
  });

  it('keeps events on disk until a function host runs', async () => {
    const dir = scratch.dir();
    const first = await scratch.cloud({dir});
    await put(first, 'datasets/early');
    await publish(first, 'control', '"early"');
    assert.equal((await info(first)).deliveries_pending, 2);
    await first.close();
    const {cloud, seen} = await scratch.cloudWithFunctions({dir});
    await idle(cloud);
    assert.deepEqual(
      seen()
        .map(event => event.function)
        .toSorted(),
      ['on-control', 'on-object'],
    );
  });

  it('counts no attempt while the module of the functions fails to load', async () => {
    const dir = scratch.dir();
    const cloud = await scratch.cloud({dir, function_host: {module: join(dir, 'missing.ts')}});
    await publish(cloud, 'control', '"x"');
    await until(
      'the host failed twice',
      () => scratch.log.filter(line => line.includes('host ended')).length >= 2,
    );
    assert.ok(scratch.log.some(line => line.includes('missing.ts')));
    const answer = await fetch(`${tokenUrl(cloud)}/functions/worker-api`);
    assert.equal(answer.status, 503);
    const {deliveries_pending, dead_letters} = await info(cloud);
    assert.deepEqual({deliveries_pending, dead_letters}, {deliveries_pending: 1, dead_letters: []});
  });

  it('passes method, path, query, headers and body of a request to its HTTP function', async () => {
    const {cloud} = await scratch.cloudWithFunctions();
    const answer = await fetch(`${tokenUrl(cloud)}/functions/worker-api/deep/er?a=1&b=%20`, {
      method: 'POST',
      body: JSON.stringify({action: 'lease'}),
      headers: {'content-type': 'application/json', authorization: 'Bearer token'},
    });
    assert.deepEqual(await answer.json(), {
      ...{method: 'POST', path: '/deep/er', query: {a: '1', b: ' '}},
      ...{authorization: 'Bearer token', body: {action: 'lease'}, deployment: 'gleaner'},
    });
    for (const name of ['on-object', 'on-tick', 'nothing']) {
      assert.equal((await fetch(`${tokenUrl(cloud)}/functions/${name}`)).status, 404);
    }
  });

  describe('under a fault', () => {
    it('drop records each event in place of its delivery', async () => {
      const {cloud, seen} = await scratch.cloudWithFunctions();
      await cloud.fault('drop', 'object');
      await put(cloud, 'datasets/lost');
      const [kept] = await publish(cloud, 'control', '"kept"');
      await until('the message arrived', () => seen().some(event => event.id === kept));
      assert.equal(seen().length, 1);
      const database = new DatabaseSync(join(cloud.dir, 'cloud.db'), {readOnly: true});
      const rows = database.prepare('SELECT function, target, event FROM dropped_events').all();
      database.close();
      const [row] = rows as {function: string; target: string; event: string}[];
      assert.equal(rows.length, 1);
      assert.deepEqual([row?.function, row?.target], ['gleaner-on-object', 'object']);
      assert.equal(JSON.parse(row?.event ?? '{}').attributes.objectId, 'datasets/lost');
    });

    it('double delivers every event twice under one id', async () => {
      const {cloud, seen} = await scratch.cloudWithFunctions();
      await cloud.fault('double', 'control');
      const ids = await publish(cloud, 'control', '"a"', '"b"');
      await put(cloud, 'datasets/single');
      await until('five events arrived', () => seen().length === 5);
      for (const id of ids) assert.equal(seen().filter(event => event.id === id).length, 2);
    });

    it('reorder delivers every event in another order', async () => {
      const {cloud, seen} = await scratch.cloudWithFunctions();
      await cloud.fault('reorder', 'all');
      const ids = await publish(cloud, 'control', ...Array.from({length: 30}, (_, n) => `"${n}"`));
      await idle(cloud);
      const arrived = seen().map(event => event.id);
      assert.deepEqual(arrived.toSorted(), ids.toSorted());
      assert.notDeepEqual(arrived, ids);
    });

    it('drop ends with clear', async () => {
      const {cloud, seen} = await scratch.cloudWithFunctions();
      await cloud.fault('drop', 'all');
      await cloud.fault('clear', 'drop');
      const [id] = await publish(cloud, 'control', '"a"');
      await until('the event arrived', () => seen().some(event => event.id === id));
    });
  });

  it('repeats events after a kill of the function host during their delivery', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const ids = await publish(cloud, 'control', ...Array.from({length: 8}, () => '"hang once"'));
    await until('eight deliveries began', () => seen().length === 8);
    process.kill(seen()[0]?.pid ?? 0, 'SIGKILL');
    await until('eight deliveries were repeated', () => seen().length >= 16);
    await idle(cloud);
    for (const id of ids) assert.ok(seen().filter(event => event.id === id).length >= 2);
  });
});
