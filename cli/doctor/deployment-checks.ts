/** Checks of the deployment: zones, Scheduler, bucket, functions, prices and a write. */

import {absentAsNull} from '../../client/google/api.ts';
import {openSchedule} from '../../client/google/schedule.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, counted} from '../../client/text/format.ts';
import {quoted, warn} from '../../client/text/output.ts';
import {LIVING, runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {receiverRecords} from '../../shared/control-plane/documents/notices.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {ageText, oldestDay} from '../../shared/domain/billing/prices.ts';
import {tickJobOf} from '../../shared/domain/deployment.ts';
import {paths, regionOf} from '../../shared/domain/names.ts';
import type {Provider} from '../../shared/domain/records/providers.ts';
import {iso, utcText} from '../../shared/domain/time.ts';
import {isForbidden} from '../../shared/google/errors.ts';
import type {Filter, Store} from '../../shared/ports/ports.ts';
import {lacksOf} from '../checks/pool.ts';
import {wrongFunctions} from '../deploy/functions.ts';
import {broken, type Check, ok, warning} from './context.ts';

const zones: Check = {
  name: 'TPUs of the zones',
  is_local: true,
  async check({api, project, zones, accelerator, runtime_version, provider}) {
    const problems = await lacksOf(api, project, {zones, accelerator, runtime_version, provider});
    const [first] = problems;
    if (!first) return ok(`${zones.join(', ')} offer ${accelerator} and ${runtime_version}`);
    const list = offerOf(provider, first.lacks === accelerator, first.zone);
    return broken(
      problems.map(({zone, lacks}) => `${zone} has no ${lacks}`).join(', '),
      `take ${first.zone} out of \`zones\`, or ask for TPU quota there; its offer: gcloud compute ${list} --project=${project}`,
    );
  },
};

/** Command of gcloud that lists types, or software, of a zone. */
function offerOf(provider: Provider, isType: boolean, zone: string): string {
  if (provider === 'compute-engine')
    return isType ? `machine-types list --zones=${zone}` : 'images list --no-standard-images';
  return `tpus ${isType ? 'accelerator-types list' : 'tpu-vm versions list'} --zone=${zone}`;
}

const schedule: Check = {
  name: 'Scheduler',
  is_local: true,
  async check({api, project, scheduler_region: location, name, folder}) {
    const {job, read} = openSchedule(api, {project, location, deployment: name});
    const found = await absentAsNull(read());
    if (!found) return broken(`there is no job ${job}`, 'gleaner deploy');
    const {state, last_code: code} = found;
    const at = folder === undefined ? ` --location ${location}` : ` --dir ${quoted(folder)}`;
    if (state !== 'ENABLED')
      return broken(`${tickJobOf(name)} is ${state}: budgets are not applied`, `gleaner tick resume${at}`);
    if (code !== 0)
      return broken(`the last message of ${tickJobOf(name)} failed with code ${code}`, `gleaner tick${at}`);
    return ok(`${tickJobOf(name)} is ENABLED`);
  },
};

const bucket: Check = {
  name: 'region of the bucket',
  async check({api, bucket, zones}) {
    const found = await absentAsNull(api.call('GET', `storage.googleapis.com/storage/v1/b/${bucket}`));
    if (!found) return broken(`there is no bucket ${bucket}`, 'gleaner deploy');
    const region = String(found.location).toLowerCase();
    const remote = zones.filter(zone => regionOf(zone) !== region);
    if (remote.length === 0) return ok(`${bucket} and every zone are in ${region}`);
    return warning(
      `${bucket} is in ${region}, and ${remote.join(', ')} elsewhere: each GB between them costs $0.02 or more`,
      `choose zones of ${region} in the settings`,
    );
  },
};

const digests: Check = {
  name: 'functions',
  async check({api, project, region, name, applied}) {
    if (!applied) return warning('no deployment is recorded beside the state', 'gleaner deploy');
    const {functions} = applied.artifacts;
    const [wrong] = await wrongFunctions(api, {project, region, name}, applied.artifacts);
    if (wrong) return broken(wrong.evidence, wrong.cure);
    return ok(
      `all run ${functions.sha256.slice(0, 12)}, applied at ${utcText(applied.deployed_at)} by ${applied.account}`,
    );
  },
};

const prices: Check = {
  name: 'prices',
  is_local: true,
  async check({store, now_ms, accelerator, zones, folder}) {
    const known = await readPrices({store, log: warn}, [{accelerator}]);
    const day = oldestDay(known, accelerator, zones);
    const age = ageText(day, now_ms);
    if (age === undefined) return ok(day === null ? 'of a person, without a date' : `of ${day}`);
    const at = folder === undefined ? '' : ` --dir ${quoted(folder)}`;
    return warning(`${accelerator} has prices of ${day}, ${age}`, `gleaner prices update${at}`);
  },
};

const notifications: Check = {
  name: 'notifications',
  is_local: true,
  async check({store, settings, is_google}) {
    const receiver = await receiverRecords.get(store, paths.receiver());
    if (is_google && !settings.notify) return ok('no receiver is set');
    if (!receiver) return ok('none was sent yet');
    const {error, failures, failing_since_at, sent_at} = receiver;
    if (error === null) return ok(`the last one was accepted at ${utcText(sent_at ?? 0)}`);
    const waiting = await store.count('notices', [{field: 'next_at', op: '>', value: iso(0)}]);
    return broken(
      `${error}; ${counted(failures, 'try', 'tries')} in a row failed since ${utcText(failing_since_at ?? 0)}, and ${waiting} wait`,
      is_google
        ? 'correct the address of `notify`, or its secret, then: gleaner deploy'
        : 'start the receiver, or give another address: gleaner local up --notify URL',
    );
  },
};

/** Deployments to which `gleaner deploy --artifacts` can go back without a new build of their environment. */
const KEPT_DEPLOYMENTS = 5;

const environments: Check = {
  name: 'old environments',
  async check({objects, store, applied, records}) {
    const stored = await objects.list('environments/');
    const all = await records();
    const used = await bundlesInUse(store);
    const known = new Map(all.map(({artifacts}) => [artifacts.bundle.sha256, artifacts.environment?.sha256]));
    const unknown = used.filter(bundle => !known.has(bundle));
    if (unknown.length > 0)
      return ok(
        `${counted(stored.length, 'archive')}; no record has the bundle ${unknown[0]} of a run or a TPU`,
      );
    const needed = new Set([
      applied?.artifacts.environment?.sha256,
      ...all.slice(-KEPT_DEPLOYMENTS).map(({artifacts}) => artifacts.environment?.sha256),
      ...used.map(bundle => known.get(bundle)),
    ]);
    // An archive without a record may be that of a deployment by plain Terraform.
    const recorded = new Set(known.values());
    const old = stored.filter(({name}) => {
      const sha256 = name.slice('environments/'.length).replace('.tar.gz', '');
      return recorded.has(sha256) && !needed.has(sha256);
    });
    if (old.length === 0) return ok(`${counted(stored.length, 'archive')}, none of them old`);
    const bytes = old.reduce((sum, {size_bytes}) => sum + size_bytes, 0);
    return warning(
      `${counted(old.length, 'archive')} of ${bytesText(bytes)}, which no unfinished run, no TPU and none of the last ${KEPT_DEPLOYMENTS} deployments needs`,
      `gcloud storage rm ${old.map(({name}) => `gs://${objects.bucket}/${name}`).join(' ')}`,
    );
  },
};

/** Runs that a TPU may continue, at once or after a `retry`. */
const UNFINISHED_RUNS: Filter = {field: 'status', op: 'in', value: ['active', 'paused', 'failed']};

/** Bundles of unfinished runs and of TPUs. Each bundle names its environment. Throws for a document that is not valid. */
async function bundlesInUse(store: Store): Promise<string[]> {
  const refuse = (error: Error) => {
    throw new CliError(error.message, {cause: error});
  };
  const runs = runRecords.parseAll(await store.query('runs', {where: [UNFINISHED_RUNS]}), refuse);
  const workers = workerRecords.parseAll(await store.query('workers', {where: [LIVING]}), refuse);
  return [...new Set([...runs, ...workers].flatMap(({bundle}) => bundle ?? []))];
}

/** People may create objects here, no function starts with them, and a lifecycle rule deletes them. */
const TRIAL_FOLDER = 'code/doctor/';

const write: Check = {
  name: 'a write',
  is_local: true,
  async check({objects, now_ms}) {
    const name = `${TRIAL_FOLDER}${now_ms}-${process.pid}`;
    const bytes = Buffer.from('gleaner doctor\n');
    const isDenied = (error: unknown) => isForbidden((error as Error).cause);
    try {
      const first = await objects.create(name, bytes);
      const second = await objects.create(name, bytes);
      const stored = await objects.read(name, {max_bytes: 1000});
      const end = await objects.delete(name).then(
        () => 'deleted',
        (error: unknown) => {
          // Operators and users replace and delete nothing.
          if (isDenied(error)) return 'left to its lifecycle rule';
          throw error;
        },
      );
      if (first !== 'created' || second !== 'exists' || !stored || Buffer.compare(stored, bytes) !== 0)
        return broken(
          `gs://${objects.bucket}/${name} was ${first}, then ${second}`,
          'look for a proxy of the network',
        );
      return ok(`an object was made once, read and ${end} in gs://${objects.bucket}/${TRIAL_FOLDER}`);
    } catch (error) {
      return broken(
        (error as Error).message,
        isDenied(error)
          ? 'use the account that deployed, or add yours to `operators` or `users` in the settings and run `gleaner deploy`'
          : 'repair the access, and run it again',
      );
    }
  },
};

export const DEPLOYMENT_CHECKS: Check[] = [
  ...[zones, schedule, bucket, digests, environments, prices, notifications, write],
];
