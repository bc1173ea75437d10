import {openStore} from '../../shared/compose.ts';
import {type CloudOptions, running} from '../cloud/connect.ts';
import {complain, print, say} from '../terminal/output.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {DEFAULT_PORT} from './address.ts';
import {deployLocally} from './local-deployment.ts';
import {printNews} from './local-event-lines.ts';

type Options = Pick<CloudOptions, 'json'> & {
  port: number;
  dir: string;
  workers: number;
  git_token_secret?: string;
  built?: boolean;
  emulators?: boolean;
  quiet?: boolean;
};

export async function up(options: Options): Promise<void> {
  const stopped = stopSignal();
  const deployment = await deployLocally({
    ...options,
    stopped,
    begin: say,
    say,
  });
  const {url, project, bucket, dir, port} = deployment.cloud;
  const ready = {ready: true as const, url, project, bucket, dir};
  print<'local up'>(options.json, ready, welcome(url, port, bucket, options.emulators));
  const news = new AbortController();
  const store = openStore(running(deployment.cloud));
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
    await store.close();
    await deployment.close();
  }
}

function welcome(url: string, port: number, bucket: string, emulators = false): string[] {
  const flag = port === DEFAULT_PORT ? '' : ` --port ${port}`;
  return [
    `Gleaner's local cloud is up at ${url}. In another terminal:`,
    '',
    `  npx gleaner streams create my.jsonl --num-streams 4 --output-dir streams`,
    `  npx gleaner run start my-run --streams streams${flag}`,
    `  npx gleaner run watch my-run${flag}`,
    `  eval "$(npx gleaner local env${flag})"    # for gcloud: gs://${bucket}`,
    '',
    ...(emulators
      ? [
          "Firestore and Pub/Sub are Google's emulators, which keep everything in memory. Every user of this machine can write to them.",
          'Ctrl-C stops the cloud and loses its documents and messages. The next start makes the documents of runs again from the bucket.',
        ]
      : ['Ctrl-C stops the cloud. Its folder keeps every object and run.']),
  ];
}
