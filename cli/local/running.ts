/** `gleaner local env` and `fault`, which need a running local cloud. */
import {
  type CloudOptions,
  type LocalInfo,
  running,
  runningCloud,
  storeOf,
} from '../../client/connection/connect.ts';
import {tpuStatus} from '../../client/explanations/tpu-status.ts';
import {CliError} from '../../client/text/errors.ts';
import {printText, quoted} from '../../client/text/output.ts';
import {tokenFile, urlWithToken} from '../../emulator/http/guard.ts';
import {faultHelp} from '../../emulator/state/faults.ts';
import {workerRecords} from '../../shared/control-plane/documents/documents.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {CLOCK} from '../deploy/until-ready.ts';
import {waitFor} from '../run/wait.ts';
import {ZONE} from './local-deployment.ts';

/** Prints export lines for a shell: variables of gcloud, of Google's clients and of gleaner. */
export async function printEnvironment(options: CloudOptions): Promise<void> {
  const info = await runningCloud(options);
  const base = `${info.url}/`;
  const variables = {
    CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE: `${base}storage/v1/`,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB: base,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU: base,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE: `${base}compute/v1/`,
    CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER: base,
    CLOUDSDK_AUTH_ACCESS_TOKEN_FILE: tokenFile(info.dir),
    CLOUDSDK_CORE_PROJECT: info.project,
    CLOUDSDK_CORE_DISABLE_PROMPTS: '1',
    CLOUDSDK_COMPUTE_ZONE: ZONE,
    STORAGE_EMULATOR_HOST: urlWithToken(info.url, info.token),
    PUBSUB_EMULATOR_HOST: info.pubsub_endpoint,
    ...(info.firestore_endpoint ? {FIRESTORE_EMULATOR_HOST: info.firestore_endpoint} : {}),
    PUBSUB_PROJECT_ID: info.project,
    GOOGLE_CLOUD_PROJECT: info.project,
    METADATA_SERVER_DETECTION: 'none',
    BUCKET: info.bucket,
    GLEANER_CLOUD: info.dir,
  };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}=${quoted(value)}`);
  printText(lines);
}

type FaultOptions = CloudOptions & {at_work?: boolean};

export async function fault(kind: string, given: string, options: FaultOptions): Promise<void> {
  if (kind === 'help') return printText(faultHelp.split('\n'));
  const info = await runningCloud(options);
  const target = options.at_work ? await workingTpu(info, given) : given;
  const response = await fetch(`${info.url}/_local/faults`, {
    method: 'POST',
    headers: {'content-type': 'application/json', authorization: `Bearer ${info.token}`},
    body: JSON.stringify({kind, target}),
  });
  const body = (await response.json()) as {done?: string; error?: {message?: string}};
  if (!response.ok)
    throw new CliError(
      body.error?.message ?? `Failed to inject the fault: the local cloud answered ${response.status}`,
    );
  printText([body.done ?? '']);
}

const [WAIT_S, IDLE_S, LOOK_S] = [300, 15, 0.1];

/** Waits until a TPU works on a stream or a job: this TPU, or any where none is named. Throws `CliError` after 15 s without a TPU, or five minutes. */
async function workingTpu(info: LocalInfo, name: string): Promise<string> {
  const store = storeOf(running(info));
  const begun_ms = CLOCK.now();
  const limit = {limit_s: IDLE_S, look_s: LOOK_S, cure: '`gleaner status` shows what waits'};
  try {
    return await waitFor({clock: CLOCK}, `${name || 'TPU'} at work`, limit, async () => {
      const workers = workerRecords.parseAll(await store.query('workers'), () => {});
      const waited_s = Math.round((CLOCK.now() - begun_ms) / 1000);
      if (workers.some(({phase}) => phase !== 'gone')) limit.limit_s = Math.min(WAIT_S, waited_s + IDLE_S);
      const isMeant = (worker: Worker) => name === '' || worker.name === name;
      return workers.find(worker => tpuStatus(worker) === 'WORKING' && isMeant(worker))?.name;
    });
  } finally {
    await store.close();
  }
}
