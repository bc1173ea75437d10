import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import type {z} from 'zod';
import {STORED_SCHEMAS} from '../../client/json/stored-schemas.ts';
import {heardFrom} from '../../shared/domain/requests/heard-from.ts';
import {SUMMED} from '../../shared/domain/run/summarize.ts';
import {ROOT} from '../support/machine/process.ts';
import {at, aWorker, T0} from '../world/builders.ts';
import {resourcesOf} from './a-deployment.ts';

const WORK = {
  work: 'my-run/007',
  epoch: 1,
  drains: false,
  yields_to: null,
  activity: 'work',
  samples_total: 100,
};

function heartbeat(progress: number, minute: number) {
  const done = {
    samples_done: progress,
    tokens_done: progress,
    shards_done: progress,
    tokens_per_s: progress,
    waits_for: null,
  };
  return {...WORK, ...done, claimed_at: at(60 * minute)};
}

/** Fields that a query in shared/ filters or orders by, and those that a sum adds. */
function queriedFields(): string[] {
  const files = readdirSync(`${ROOT}shared`, {recursive: true, encoding: 'utf8'});
  const texts = files
    .filter(name => name.endsWith('.ts'))
    .map(name => readFileSync(`${ROOT}shared/${name}`, 'utf8'));
  const named = texts.flatMap(text => [...text.matchAll(/\bfield: '(\w+)'/g)].map(([, field = '']) => field));
  return [...new Set([...named, ...SUMMED])];
}

describe('the expiry of documents', () => {
  it('has a policy for each kind of document with a time of its expiry', async () => {
    const policies = (await resourcesOf()).filter(({name}) => name === 'expire_at');
    const kinds = Object.entries(STORED_SCHEMAS).flatMap(([title, schema]) => {
      const [path = ''] = title.replaceAll('`', '').split(' ');
      return 'expire_at' in (schema as z.ZodObject).shape ? path.split('/').at(-2) : [];
    });
    assert.deepEqual(policies.map(({values}) => values.collection).sort(), kinds.sort());
  });
});

describe('index exemptions', () => {
  let exempt: unknown[];
  let texts: unknown[];
  before(async () => {
    const fields = async (group: string) =>
      (await resourcesOf()).filter(({name}) => name === group).map(({values}) => values.field);
    exempt = await fields('heartbeat');
    texts = await fields('text');
  });

  it('name no field that a query filters, orders or sums by', () => {
    const queried = queriedFields();
    for (const known of ['phase', 'held', 'blocked_until_at', 'status'])
      assert.ok(queried.includes(known), known);
    assert.deepEqual(
      queried.filter(field => [...exempt, ...texts].includes(field)),
      [],
    );
  });

  it('name the long texts of jobs', () => {
    for (const field of ['code', 'result', 'error', 'environment', 'env'])
      assert.ok(texts.includes(field), field);
  });

  it('of workers name each field that a heartbeat at work changes', () => {
    const paid = aWorker({phase: 'working', ready_at: at(0), usd_per_hour: 1, charged_to: 'my-run'});
    const first = heardFrom(paid, heartbeat(1, 0), T0);
    const second = heardFrom(first, heartbeat(2, 1), T0 + 60_000);
    const changed = Object.entries(second)
      .filter(
        ([field, value]) => JSON.stringify(value) !== JSON.stringify({...first}[field as keyof typeof first]),
      )
      .map(([field]) => field);
    assert.ok(changed.includes('heartbeat_at') && changed.includes('costs'));
    assert.deepEqual(
      changed.filter(field => !exempt.includes(field)),
      [],
    );
  });
});
