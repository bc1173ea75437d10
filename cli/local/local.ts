import {faultHelp} from '../../emulator/faults.ts';
import {tokenFile, urlWithToken} from '../../emulator/http/guard.ts';
import {openStore} from '../../shared/compose.ts';
import {type LocalInfo, running, runningCloud, type Where} from '../cloud/connect.ts';
import {CliError} from '../terminal/errors.ts';
import {complain, print, quoted, say} from '../terminal/output.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {DEFAULT_PORT} from './defaults.ts';
import {deployLocally, ZONE} from './local-deployment.ts';
import {printNews} from './local-event-lines.ts';

export async function up(options: {
  port: number;
  dir: string;
  workers: number;
  built?: boolean;
  emulators?: boolean;
  json?: boolean;
  quiet?: boolean;
}): Promise<void> {
  const stopped = stopSignal();
  const deployment = await deployLocally({...options, stopped, begin: say, say});
  const {url, project, bucket, dir, port} = deployment.cloud;
  print(
    options.json,
    {ready: true, url, project, bucket, dir},
    welcome(url, port, bucket, options.emulators),
  );
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

/** Prints export lines for a shell: variables of gcloud, of Google's clients and of gleaner. */
export async function printEnvironment(where: Where): Promise<void> {
  const info = await runningCloud(where);
  const token = requiredToken(info);
  const base = `${info.url}/`;
  const variables = {
    CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE: `${base}storage/v1/`,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB: base,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU: base,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER: base,
    CLOUDSDK_AUTH_ACCESS_TOKEN_FILE: tokenFile(info.dir),
    CLOUDSDK_CORE_PROJECT: info.project,
    CLOUDSDK_CORE_DISABLE_PROMPTS: '1',
    CLOUDSDK_COMPUTE_ZONE: ZONE,
    STORAGE_EMULATOR_HOST: urlWithToken(info.url, token),
    PUBSUB_EMULATOR_HOST: info.pubsub_endpoint,
    ...(info.firestore_endpoint ? {FIRESTORE_EMULATOR_HOST: info.firestore_endpoint} : {}),
    PUBSUB_PROJECT_ID: info.project,
    GOOGLE_CLOUD_PROJECT: info.project,
    METADATA_SERVER_DETECTION: 'none',
    BUCKET: info.bucket,
    GLEANER_LOCAL_URL: info.url,
  };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}=${quoted(value)}`);
  print(false, variables, lines);
}

function requiredToken(info: LocalInfo): string {
  if (info.token === undefined)
    throw new CliError(
      `Failed to read the token of the local cloud in ${info.dir}: only the user who started it can drive it`,
    );
  return info.token;
}

export async function fault(kind: string, target: string, where: Where): Promise<void> {
  if (kind === 'help') {
    print(false, {}, faultHelp.split('\n'));
    return;
  }
  const info = await runningCloud(where);
  const response = await fetch(`${info.url}/_local/faults`, {
    method: 'POST',
    headers: {'content-type': 'application/json', authorization: `Bearer ${requiredToken(info)}`},
    body: JSON.stringify({kind, target}),
  });
  const body = (await response.json()) as {done?: string; error?: {message?: string}};
  if (!response.ok) throw new CliError(body.error?.message ?? `the local cloud answered ${response.status}`);
  print(false, body, [body.done ?? '']);
}
