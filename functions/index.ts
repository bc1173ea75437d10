import {
  type CloudEvent,
  cloudEvent,
  http,
  type Request,
  type Response,
} from '@google-cloud/functions-framework';
import {composeDeps} from '../shared/compose.ts';
import {Rejected} from '../shared/contracts/errors.ts';
import {pushId} from '../shared/contracts/messages/push.ts';
import {loadConfig, servedFunction} from '../shared/contracts/settings/config.ts';
import {duringCall} from '../shared/control-plane/calls/log.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {requireVerifier} from '../shared/google/callers.ts';
import {onControl} from './on-control.ts';
import {onExec} from './on-exec.ts';
import {onJob} from './on-job.ts';
import {onObject} from './on-object.ts';
import {onTask} from './on-task.ts';
import {onTick} from './on-tick.ts';
import {onTpu} from './on-tpu.ts';
import {workerApi} from './worker-api.ts';

let composed: Deps | undefined;
function deps(): Deps {
  composed ??= composeDeps(loadConfig());
  return composed;
}

function stackOf(error: unknown): string {
  return (error as Error).stack ?? String(error);
}

/** Logs and acknowledges an event that can never succeed. Any other error is rethrown, so that the event is delivered again. */
function onEvent(name: string, handle: (deps: Deps, event: CloudEvent<unknown>) => Promise<void>): void {
  cloudEvent(name, async (event: CloudEvent<unknown>) => {
    const ready = deps();
    const traceparent = (event as {traceparent?: string}).traceparent;
    await duringCall({function: name, message_id: pushId(event), traceparent}, async () => {
      try {
        await handle(ready, event);
      } catch (error) {
        const isFinal = error instanceof Rejected;
        ready.log('ERROR', isFinal ? error.message : stackOf(error));
        if (!isFinal) throw error;
      }
    });
  });
}

function onRequest(
  name: string,
  handle: (deps: Deps, request: Request, response: Response) => Promise<void>,
): void {
  http(name, async (request, response) => {
    const ready = deps();
    await duringCall({function: name, traceparent: request.get('traceparent')}, async () => {
      try {
        await handle(ready, request, response);
      } catch (error) {
        ready.log('ERROR', stackOf(error));
        response.status(500).json({error: 'internal error; see the log of the function'});
      }
    });
  });
}

// A revision that cannot check its callers fails to start, so the previous revision keeps serving.
if (servedFunction() === 'worker-api') requireVerifier(loadConfig());

onEvent('on-object', onObject);
onEvent('on-job', onJob);
onEvent('on-control', onControl);
onEvent('on-exec', onExec);
onEvent('on-tpu', onTpu);
onEvent('on-tick', onTick);
onEvent('on-task', onTask);
onRequest('worker-api', workerApi);
