import assert from 'node:assert/strict';
import {isTicketOf, leaseKey, ticketOf} from '../../../shared/control-plane/workers/tickets.ts';
import {aConfig, aLeasedStream, at} from '../../world/builders.ts';

const IDENTITY = {...aConfig().identity, ticket_key: 'a'.repeat(64)};
const LIFE = {name: 'tpu-us-central1-a-0', incarnation: 1, born_at: at(0)};

describe('the ticket of an incarnation', () => {
  const ticket = ticketOf(IDENTITY, 'on-tpu', LIFE);

  it('is the same for a repeated create', () => {
    assert.ok(isTicketOf(IDENTITY, {...LIFE}, ticket));
  });

  const others = [{name: 'tpu-us-central1-a-1'}, {incarnation: 2}, {born_at: at(1)}];
  for (const other of others)
    it(`is refused for another ${Object.keys(other)}`, () => {
      assert.ok(!isTicketOf(IDENTITY, {...LIFE, ...other}, ticket));
    });

  for (const other of [{ticket_key: 'b'.repeat(64)}, {deployment: 'another'}])
    it(`is refused for another ${Object.keys(other)}`, () => {
      assert.ok(!isTicketOf({...IDENTITY, ...other}, LIFE, ticket));
    });
});

describe('the key of a lease', () => {
  const stream = aLeasedStream();
  const key = leaseKey(IDENTITY, stream, 1);

  for (const other of [{run: 'another'}, {stream: '999'}, {created_at: at(1)}])
    it(`differs for another ${Object.keys(other)}`, () => {
      assert.notEqual(leaseKey(IDENTITY, {...stream, ...other}, 1), key);
    });

  it('differs for another epoch', () => {
    assert.notEqual(leaseKey(IDENTITY, stream, 2), key);
  });
});
