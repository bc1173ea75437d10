import type {Request, Response} from '@google-cloud/functions-framework';
import {lookAtEverything} from '../shared/control-plane/handlers/tick.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';

/** The Scheduler's beat. It is an HTTP call and no message, so that ticks do not pile up in a queue. */
export async function onTick(deps: Deps, _request: Request, response: Response): Promise<void> {
  await lookAtEverything(deps);
  response.status(204).end();
}
