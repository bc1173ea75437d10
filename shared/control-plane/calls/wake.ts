import type {Bus} from '../../ports/ports.ts';

/** Asks for a tick now. A lost wake costs at most a minute, because the Scheduler asks every minute. */
export async function wake(bus: Bus): Promise<void> {
  await bus.publish('tick', {});
}
