/** Messages that operators send in a simulated world. */
import {streamId} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Context} from './context.ts';

export function aCommand({chance, config, isBusy, isWide, tpus}: Context): Document {
  const run = `run-${chance.integer(0, isWide ? 3 : 1)}`;
  const stream = streamId(chance.integer(0, isWide ? 14 : 2));
  const worker = chance.pick([...tpus.nodes.keys(), `${config.pool.pool}-us-central1-a-0`]);
  const zones = chance.happens(0.5) ? {zones: [chance.pick(config.pool.zones)]} : {};
  const scale = {action: 'scale', workers_per_zone: chance.integer(0, 3), ...zones};
  return chance.pick<Document>([
    ...(isBusy ? [scale, scale, scale, scale, {action: 'stop', run: 'run-1'}] : []),
    {action: 'pause', run},
    {action: 'pause', run},
    {action: 'resume', run},
    {action: 'start', run},
    {action: 'stop', run},
    {action: 'stop', run},
    {action: 'retry', run},
    {action: 'retry', run, stream},
    {action: 'cancel', run, stream},
    {action: 'cancel', run, stream},
    {action: 'rebuild', ...(chance.happens(0.5) ? {run} : {})},
    {action: 'recreate', worker},
    {action: 'recreate', worker},
    {action: 'delete', worker},
    {action: 'delete', worker},
    {action: 'configure', run, priority: chance.integer(-1, 1), budget_usd: chance.pick([0.01, 0.1])},
    scale,
    {action: 'update', source: {bundle: 'b'.repeat(64)}},
  ]);
}

/** The message with the opposite effect. */
export function oppositeOf(message: Document): Document | undefined {
  switch (message.action) {
    case 'pause':
      return {...message, action: 'resume'};
    case 'resume':
      return {...message, action: 'pause'};
    case 'delete':
      return {...message, action: 'recreate'};
    case 'recreate':
      return {...message, action: 'delete'};
    case 'configure':
      return {action: 'configure', run: String(message.run), budget_usd: 0.2};
    case 'scale':
      return {action: 'scale', workers_per_zone: 2};
    default:
      return undefined;
  }
}

/** A message that the control plane rejects. */
export function anInvalidMessage({chance}: Context): Document {
  return chance.pick<Document>([
    {action: 'dance'},
    {action: `${'dance'.repeat(20).slice(0, 98)}💃`},
    {action: 'pause'},
    {action: 'pause', run: 'run-0', at: 'noon'},
    {action: 'scale', workers_per_zone: -1},
    {action: 'stop', run: 'run-9'},
    {action: 'delete', worker: 'tpu-us-central1-a-99'},
  ]);
}
