import type {Bus} from '../../ports.ts';

/** Asks for a tick now. A wake that is lost costs at most a minute: the Scheduler asks every minute. */
export async function wake(bus: Bus): Promise<void> {
  await bus.publish('tick', {});
}
