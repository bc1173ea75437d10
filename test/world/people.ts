/** Messages on topic `control`, and their records. */
import type {World} from './world.ts';

/** Publishes the message and delivers it with all messages that follow: a tick, and tasks. */
export async function send(world: World, message: string | object) {
  const id = await world.order(message);
  return {id, ...(await outcomeOf(world, id))};
}

/** Publishes the message and delivers it alone. */
export async function sendAlone(world: World, message: string | object) {
  const id = world.control(message);
  await world.deliverNext('control');
  return {id, ...(await outcomeOf(world, id))};
}

export async function outcomeOf(world: World, id: string) {
  const record = await world.store.get(`control/${id}`);
  return {outcome: record?.outcome, reason: String(record?.reason)};
}
