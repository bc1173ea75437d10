/** Causes of a wait in a test world, and what `why` says of each. */
import {TpuError} from '../../../shared/contracts/errors.ts';
import type {ConstraintKind} from '../../../shared/domain/records/constraint.ts';
import type {Refusal} from '../../../shared/domain/worker/provider-states.ts';
import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';
import {wait} from './fleet.ts';
import {ONE_SLOT, ZONE} from './places.ts';

/** `kind`: null where nothing waits, and then `about` is null too. */
type Then = {
  kind: ConstraintKind | null;
  about: string | null;
  since_at?: RegExp;
  evidence?: RegExp;
  next_step?: RegExp;
  behind?: RegExp;
};
export type Wait = Then & {
  name: string;
  /** A world in which the cause holds, after a tick. */
  given: () => Promise<World>;
  /** The name that a person asks about. */
  of?: string;
};

export const LINES = someLines(12);

/** A world with one slot, in which the effect holds before the stream is dropped. */
export async function aWorldWith(
  effect: (world: World) => unknown,
  minutes = 3,
  set: object = {},
): Promise<World> {
  const world = new World({...ONE_SLOT, ...set});
  await effect(world);
  await world.deliverAll();
  world.drop('my-run', 0, LINES);
  await world.minutes(minutes);
  return world;
}

/** A world after a message or an effect, and then so many minutes. 0: after one tick. */
export async function aWorldAfter(
  given: World | Promise<World>,
  minutes: number,
  cause: object | ((world: World) => unknown),
): Promise<World> {
  const world = await given;
  await (typeof cause === 'function' ? cause(world) : world.control(cause));
  await (minutes > 0 ? wait(world, minutes) : world.tick());
  return world;
}

/** Cloud TPU refuses every create for a cause. */
export function refuse(kind: Refusal) {
  return (world: World) => {
    world.deps.tpus.create = async ({name, zone}) => {
      throw new TpuError(kind, zone, `Failed to create ${name} in ${zone}: for a test`);
    };
  };
}

export const soldOut = (world: World) => {
  world.tpus.zone(ZONE).soldOut = true;
};

/** Nodes that never become READY. */
export function unfinished(world: World): void {
  const settle = world.settleTpus.bind(world);
  world.settleTpus = () => {
    settle();
    for (const node of world.tpus.nodes.values()) node.state = 'CREATING';
  };
}
