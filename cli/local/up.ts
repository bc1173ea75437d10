import {setTimeout as sleep} from 'node:timers/promises';
import {openCloud} from '../../client/cloud/cloud.ts';
import {currentCloud} from '../../client/connection/choose.ts';
import {type CloudOptions, running} from '../../client/connection/connect.ts';
import type {Entry} from '../../client/events/entry.ts';
import {openFilter} from '../../client/events/filter.ts';
import {readerOf} from '../../client/events/read.ts';
import {clockText} from '../../client/events/timeline.ts';
import {CliError} from '../../client/text/errors.ts';
import {setTypedCloud} from '../../client/text/hints.ts';
import {complain, print, printJson, quoted, say} from '../../client/text/output.ts';
import {LocalCloudError} from '../../emulator/http/errors.ts';
import {ownAddresses} from '../../emulator/state/own-folder.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {eventPrinter} from '../events/events.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {serveBeside} from './dashboard.ts';
import {deployLocally, type LocalOptions, notifyKeyFile} from './local-deployment.ts';

type UpOptions = Pick<CloudOptions, 'json'> &
  Omit<LocalOptions, 'deployments' | 'function_env' | 'fresh' | 'stopped' | 'begin' | 'say'> & {
    quiet?: boolean;
  };

export async function up(options: UpOptions): Promise<void> {
  const stopped = stopSignal();
  const deployment = await deployLocally({...options, stopped, begin: say, say}).catch((error: Error) => {
    throw portTaken(error, options.port) ?? error;
  });
  const {url, project, bucket, dir} = deployment.cloud;
  const found = await currentCloud().catch(() => undefined);
  const named = found?.kind === 'local' && found.dir === dir ? {} : {dir};
  setTypedCloud(named);
  const cloud = openCloud(running(deployment.cloud));
  const page = await serveBeside(cloud, options.port);
  const ready = {ready: true as const, url, project, bucket, dir, dashboard: page.url};
  print<'local up'>(options.json, ready, [
    ...welcome(ready, named, options.emulators),
    ...(options.notify ? ['', `Notifications are signed with the key in ${notifyKeyFile(dir)}.`] : []),
  ]);
  const news = new AbortController();
  const {store} = cloud;
  const printed = options.quiet
    ? undefined
    : printNews(store, {json: options.json === true, stopped: news.signal}).catch((error: Error) =>
        complain(`Failed to read the events: ${error.message}; \`gleaner events -f\` prints them`),
      );
  try {
    await Promise.race([stopped, deployment.cloud.closed, deployment.full]);
    say('Stopping');
  } finally {
    news.abort();
    await printed;
    await page.close();
    await store.close();
    await deployment.close();
  }
}

/** Names the folder of this user whose cloud has the port. */
function portTaken(error: Error, port: number): CliError | undefined {
  const isTaken = error instanceof LocalCloudError && error.code === 'port-in-use';
  const other = isTaken ? ownAddresses().find(({url}) => url.endsWith(`:${port}`)) : undefined;
  if (!other) return undefined;
  return new CliError(
    `Failed to start: your local cloud in ${other.dir} has port ${port}. Use that cloud, or start this one on any free port with \`gleaner local up --port 0\``,
  );
}

type Ready = {url: string; bucket: string; dashboard: string};

function welcome({url, bucket, dashboard}: Ready, {dir}: {dir?: string}, emulators = false): string[] {
  const dirOption = dir === undefined ? '' : ` --dir ${quoted(dir)}`;
  return [
    `Gleaner's local cloud is up at ${url}. Its pages: ${dashboard}`,
    'In another terminal:',
    '',
    `  npx gleaner streams create my.jsonl --num-streams 4 --output-dir streams`,
    `  npx gleaner run start my-run --streams streams`,
    `  npx gleaner run watch my-run`,
    `  eval "$(npx gleaner local env${dirOption})"    # for gcloud: gs://${bucket}`,
    '',
    ...(emulators
      ? [
          "Firestore and Pub/Sub are Google's emulators, which keep everything in memory. Every user of this machine can write to them.",
          'Ctrl-C stops the cloud and loses its documents and messages. The next start makes the documents of runs again from the bucket.',
        ]
      : ['Ctrl-C stops the cloud. Its folder keeps every object and run.']),
  ];
}

const INTERVAL_MS = 500;
/** The functions of a local cloud have one clock. */
const OVERLAP_MS = 10_000;

/** Prints new events until `stopped`: with `json` one object a line. Shards of a stream share a line. */
async function printNews(
  store: Store,
  {json, stopped}: {json: boolean; stopped: AbortSignal},
): Promise<void> {
  const began = new Date().toISOString();
  const reader = readerOf(store, await openFilter(store), OVERLAP_MS);
  const printObject = ({at, kind, run, text}: Entry) => printJson<'local up'>({at, kind, run, text});
  const write = eventPrinter(clockText, json ? printObject : undefined);
  while (!stopped.aborted) {
    write((await reader.next()).filter(({at}) => at >= began));
    await sleep(INTERVAL_MS, undefined, {signal: stopped}).catch(() => {});
  }
  write([], Number.POSITIVE_INFINITY);
}
