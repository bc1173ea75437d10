/** The answer of the control plane to uploaded streams: a document for each, or an event with the reason. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {Cloud} from '../../client/cloud/cloud.ts';
import {apply, POLL_MS} from '../../client/cloud/send-message.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {counted} from '../../client/text/format.ts';
import {say} from '../../client/text/output.ts';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {paths, streamObject} from '../../shared/domain/names.ts';

/** Time without news after which the message `start` registers streams whose events were lost, and after which the wait ends. */
const REGISTER_MS = 20_000;
const GIVE_UP_MS = 120_000;
const AT_ONCE = 50;
const NEWEST_EVENTS = 1000;

/** Time of the newest event by the clock of the cloud; before every event without one. */
export async function newestEvent({store}: Cloud): Promise<string> {
  const order_by = {field: 'at', direction: 'desc'} as const;
  const [newest] = await store.query('events', {order_by, limit: 1});
  return typeof newest?.data.at === 'string' ? newest.data.at : '';
}

/** `since`: time of the newest event before the drop. */
type Dropped = {streams: readonly string[]; since: string; stopped: AbortSignal};

/** Waits until each stream has a document or was rejected, and returns the reasons of the rejected ones. */
export async function untilRegistered(
  cloud: Cloud,
  run: string,
  {streams, since, stopped}: Dropped,
): Promise<string[]> {
  const rejected = new Map<string, string>();
  let waiting = [...streams];
  if (waiting.length > 0) say(`Waiting until run ${run} has taken up ${counted(waiting.length, 'stream')}`);
  let [moved_ms, isAsked] = [Date.now(), false];
  while (waiting.length > 0) {
    await refuseFailedSpec(cloud, run);
    const reasons = await rejectionsSince(cloud, run, since);
    for (const stream of waiting) {
      const reason = reasons.get(streamObject(run, stream)) ?? reasons.get(streamObject(run, stream, true));
      if (reason !== undefined) rejected.set(stream, reason);
    }
    const missing = await missingOf(cloud, run, waiting);
    const open = missing.filter(stream => !rejected.has(stream));
    if (open.length < waiting.length) moved_ms = Date.now();
    waiting = open;
    if (waiting.length === 0) break;
    const silent_ms = Date.now() - moved_ms;
    if (!isAsked && silent_ms > REGISTER_MS) {
      isAsked = true;
      say(await apply(cloud, {action: 'start', run}));
    }
    if (silent_ms > GIVE_UP_MS)
      throw new CliError(
        `There is no record of ${counted(waiting.length, 'stream')} of run ${run} after ${GIVE_UP_MS / 1000} s, such as ${waiting[0]}: read the log of the function on-object`,
      );
    await sleep(POLL_MS, undefined, {signal: stopped}).catch(() => {
      throw new Interrupted(`Interrupted: the streams are in the bucket, and run ${run} goes on by itself`);
    });
  }
  return [...rejected.values()];
}

/** A run whose run.json is refused has no spec, and takes no stream. */
async function refuseFailedSpec({store}: Cloud, run: string): Promise<void> {
  const found = await runRecords.get(store, run);
  if (found?.status === 'failed' && found.spec === null)
    throw new CliError(
      `Failed to start run ${run}: ${found.reason}; start it again with other options, and its streams continue`,
    );
}

/** Reason of each object of the run that was rejected since then. */
async function rejectionsSince({store}: Cloud, run: string, since: string): Promise<Map<string, string>> {
  const events = await store.query('events', {
    where: [{field: 'at', op: '>', value: since}],
    order_by: {field: 'at', direction: 'desc'},
    limit: NEWEST_EVENTS,
  });
  return new Map(
    events
      .filter(({data}) => data.kind === 'rejected' && data.run === run && typeof data.object === 'string')
      .map(({data}) => [String(data.object), String(data.text)]),
  );
}

/** Streams without a document. */
async function missingOf({store}: Cloud, run: string, streams: readonly string[]): Promise<string[]> {
  const head = streams.slice(0, AT_ONCE);
  const found = await Promise.all(head.map(stream => store.get(paths.stream(run, stream))));
  return [...head.filter((_, index) => found[index] === undefined), ...streams.slice(AT_ONCE)];
}
