/**
 * A program `terraform` with a state, which makes the resources of its plan in a `GoogleProject` by the calls of the provider. It keeps at a
 * destroy what the real configuration abandons.
 */
import {chmodSync, globSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {type GoogleApi, GoogleError, openGoogle} from '../../../client/google/api.ts';
import {type HttpServer, serve} from '../../../emulator/http/http.ts';
import type {JsonObject} from '../../../emulator/http/json.ts';
import {readBytes} from '../../../emulator/http/request-body.ts';
import {ROOT} from '../machine/process.ts';
import {type GoogleProject, PROJECT} from './google-project.ts';

/** `SLOW_VERB` works until an interrupt. */
const program = (url: string, folder: string) => `#!/bin/sh
if [ "$2" = "$SLOW_VERB" ]; then
  trap 'echo once >> ${folder}/interrupted; exit 1' INT
  touch ${folder}/slow
  while :; do sleep 0.1; done
fi
out=$(curl --silent --fail-with-body --noproxy '*' --header "ticket: $TF_VAR_ticket_key" --data-binary "$*" ${url}) &&
  printf '%s\\n' "$out" && exit
echo 'Refreshing the alert "quota exhausted", with ack_deadline_seconds'
printf '%s\\n' "$out" >&2
exit 1
`;

export type Planned = {address: string; type: string; values: JsonObject};
type Made = {type: string; at: string; body: JsonObject};
type Step = (args: string[]) => string | Promise<string>;
/** As the second variable file has them. */
type Artifacts = {functions: {sha256: string}; bundle: {sha256: string}};

const US = `projects/${PROJECT}/locations/us-central1`;

/** The call that makes a resource of a type, and the address of what it makes. Other types are in the state alone. */
const CALLS: Record<
  string,
  (values: JsonObject, artifacts: Artifacts) => {post: string; body: JsonObject; at: string}
> = {
  google_storage_bucket: ({name}) => {
    const at = 'storage.googleapis.com/storage/v1/b';
    return {post: `${at}?project=${PROJECT}`, body: {name, location: 'us-central1'}, at: `${at}/${name}`};
  },
  google_firestore_database: ({name}) => {
    const at = `firestore.googleapis.com/v1/projects/${PROJECT}/databases`;
    const body = {locationId: 'us-central1', type: 'FIRESTORE_NATIVE'};
    return {post: `${at}?databaseId=${name}`, body, at: `${at}/${name}`};
  },
  google_firestore_backup_schedule: ({database}) => {
    const at = `firestore.googleapis.com/v1/projects/${PROJECT}/databases/${database}/backupSchedules`;
    return {post: at, body: {dailyRecurrence: {}, retention: '604800s'}, at};
  },
  google_project_iam_custom_role: ({role_id}) => {
    const at = `iam.googleapis.com/v1/projects/${PROJECT}/roles`;
    return {post: at, body: {roleId: role_id, role: {title: 'A role'}}, at: `${at}/${role_id}`};
  },
  google_cloudfunctions2_function: ({name}, {functions, bundle}) => {
    const at = `cloudfunctions.googleapis.com/v2/${US}/functions`;
    const source = {
      storageSource: {bucket: `${PROJECT}-gleaner`, object: `functions/${functions.sha256}.zip`},
    };
    const serviceConfig = {environmentVariables: {GLEANER_BUNDLE: bundle.sha256}};
    return {
      post: `${at}?functionId=${name}`,
      body: {buildConfig: {source}, serviceConfig},
      at: `${at}/${name}`,
    };
  },
  google_cloud_scheduler_job: ({name}) => {
    const at = `cloudscheduler.googleapis.com/v1/${US}/jobs`;
    const topicName = `projects/${PROJECT}/topics/tick`;
    const body = {name: `${US}/jobs/${name}`, schedule: '* * * * *', pubsubTarget: {topicName, data: 'e30='}};
    return {post: at, body, at: `${at}/${name}`};
  },
};

const {functions} = JSON.parse(readFileSync(`${ROOT}functions/triggers.json`, 'utf8')) as {
  functions: {name: string; memory: string; cpu: number; instances: number}[];
};

/** The right to call a function, which goes with it. */
const memberOf = (name: string) => `google_cloud_run_v2_service_iam_member.invoker["${name}"]`;

/** A deployment with one resource of each type that is made or abandoned, and every function. */
export const DEPLOYMENT: readonly Planned[] = [
  {address: 'google_eventarc_trigger.document["on-job"]', values: {}},
  {address: 'google_firestore_field.text["jobs/code"]', values: {}},
  {address: 'google_storage_bucket.data', values: {name: `${PROJECT}-gleaner`}},
  {address: 'google_firestore_database.state', values: {name: 'gleaner'}},
  {address: 'google_firestore_backup_schedule.daily[0]', values: {database: 'gleaner'}},
  {address: 'google_project_iam_custom_role.tpu', values: {role_id: 'gleaner_tpu'}},
  {address: 'google_cloud_scheduler_job.tick', values: {name: 'gleaner-tick'}},
  ...functions.map(({name}) => ({address: memberOf(name), values: {}})),
  ...functions.map(({name, memory, cpu, instances}) => ({
    address: `google_cloudfunctions2_function.function["${name}"]`,
    values: {
      name: `gleaner-${name}`,
      service_config: [{available_memory: memory, available_cpu: `${cpu}`, max_instance_count: instances}],
    },
  })),
].map(each => ({...each, type: each.address.split('.', 1)[0] ?? ''}));

export class FakeTerraform {
  /** Arguments of each call after the folder. */
  readonly calls: string[] = [];
  /** The key of the tickets in each call. */
  readonly tickets: string[] = [];
  /** What the configuration has. */
  planned: readonly Planned[] = DEPLOYMENT;
  outputs: JsonObject = {
    ceilings: {max_workers: 3, accelerator: 'v6e-8', zones: ['us-central1-a', 'us-east5-b']},
    bucket: `${PROJECT}-gleaner`,
    next_commands: {start: 'gcloud storage cp a b'},
  };
  /** The next calls of a verb that fail. */
  failing: {verb: string; text: string; times: number} | undefined;
  /** Updates that fail after Terraform has noted them, as those of functions do. */
  readonly unupdated = new Set<string>();
  /** Text of each variable file that a call named. */
  variables = '';
  readonly state = new Map<string, Made>();
  #artifacts: Artifacts = {functions: {sha256: ''}, bundle: {sha256: ''}};
  #replaced: string[] = [];
  readonly #api: GoogleApi;
  #server: HttpServer | undefined;

  constructor(google: GoogleProject) {
    this.#api = openGoogle({endpoint: `${google.url}/{host}`});
  }

  /** Writes the program into a folder. */
  async start(folder: string): Promise<this> {
    this.#server = await serve(
      async ({body, headers}) => {
        const [, verb = '', ...args] = (await readBytes(body, 1 << 20, 'a call')).toString().split(' ');
        this.calls.push([verb, ...args].join(' '));
        this.tickets.push(String(headers.ticket));
        return this.#run(verb, args).then(
          text => ({body: text}),
          (error: Error) => ({status: 400, body: `Error: ${error.message}\n`}),
        );
      },
      {port: 0, trouble: error => console.error(error)},
    );
    const path = join(folder, 'terraform');
    writeFileSync(path, program(this.#server.url, folder));
    chmodSync(path, 0o755);
    return this;
  }

  async close(): Promise<void> {
    await this.#server?.close();
  }

  get verbs(): string[] {
    return this.calls.map(call => call.split(' ', 1)[0] ?? '');
  }

  async #run(verb: string, args: string[]): Promise<string> {
    const {failing} = this;
    if (failing?.verb === verb && failing.times-- > 0) throw new Error(failing.text);
    const files = args.flatMap(arg => /^-var-file=(.*)/.exec(arg)?.[1] ?? []);
    this.variables = files.map(file => readFileSync(file, 'utf8')).join('\n');
    const artifacts = files[1] && JSON.parse(readFileSync(files[1], 'utf8')).artifacts;
    if (artifacts) this.#artifacts = artifacts;
    const step = this.#STEPS[verb];
    if (!step) throw new Error(`There is no ${verb}`);
    return step(args);
  }

  /** Resources that an apply makes, updates or replaces. */
  #changes(): (Planned & {actions: string[]})[] {
    return this.planned.flatMap(each => {
      const made = this.state.get(each.address);
      const wanted = CALLS[each.type]?.(each.values, this.#artifacts).body ?? {};
      if (this.#replaced.includes(each.address)) return [{...each, actions: ['delete', 'create']}];
      if (!made) return [{...each, actions: ['create']}];
      return JSON.stringify(made.body) === JSON.stringify(wanted) ? [] : [{...each, actions: ['update']}];
    });
  }

  readonly #STEPS: Record<string, Step> = {
    init: () => '',
    plan: args => {
      this.#replaced = args.flatMap(arg => /^-replace=(.*)/.exec(arg)?.[1] ?? []);
      for (const arg of args) if (arg.startsWith('-out=')) writeFileSync(arg.slice(5), 'planned');
      return this.#changes()
        .map(({address, actions}) => `# ${address} ${actions}`)
        .join('\n');
    },
    show: () => {
      const managed = this.planned.map(each => ({...each, mode: 'managed', name: '', index: ''}));
      const changes = this.#changes().map(({address, type, actions, values}) => ({
        ...{address, type, mode: 'managed'},
        change: {actions, after: values},
      }));
      const outputs = {ceilings: {value: this.outputs.ceilings}};
      return JSON.stringify({
        resource_changes: changes,
        planned_values: {outputs, root_module: {resources: managed}},
      });
    },
    apply: async () => {
      for (const {address, type, values, actions} of this.#changes()) {
        const call = CALLS[type]?.(values, this.#artifacts);
        const made = this.state.get(address);
        if (actions.includes('delete') && made) await this.#call('DELETE', made.at);
        if (call && actions.includes('create')) await this.#call('POST', call.post, call.body);
        this.state.set(address, {type, at: call?.at ?? '', body: call?.body ?? {}});
        if (!call || !actions.includes('update')) continue;
        if (this.unupdated.delete(address)) throw new Error('Container Healthcheck failed');
        await this.#call('PATCH', call.at, call.body);
      }
      // The next plan finds what went with a service.
      for (const address of this.#replaced) this.state.delete(memberOf(address.split('"')[1] ?? ''));
      this.#replaced = [];
      return '';
    },
    import: async args => {
      const [address = '', id = ''] = args.slice(-2);
      const found = this.planned.find(each => each.address === address);
      const call = found && CALLS[found.type]?.(found.values, this.#artifacts);
      if (!call) throw new Error(`resource address ${address} does not exist in the configuration`);
      // An id is the name of the resource, or that of the bucket.
      const at =
        call.at.slice(0, call.at.indexOf('/') + 1) + (id.includes('/') ? 'v1/' : 'storage/v1/b/') + id;
      await this.#api.call('GET', at).catch(() => {
        throw new Error(`Cannot import non-existent remote object ${id}`);
      });
      this.state.set(address, {type: found.type, at, body: call.body});
      return '';
    },
    state: ([verb, ...addresses]) => {
      if (verb === 'list') return [...this.state.keys()].join('\n');
      for (const address of addresses)
        if (!this.state.delete(address)) throw new Error(`No matching objects found: ${address}`);
      return '';
    },
    destroy: async () => {
      const abandoned = abandonedOf();
      for (const [address, {at}] of [...this.state].reverse()) {
        if (at && !abandoned.has(address.split('[', 1)[0] ?? '')) await this.#call('DELETE', at);
        this.state.delete(address);
      }
      return '';
    },
    output: () =>
      JSON.stringify(
        Object.fromEntries(Object.entries(this.outputs).map(([name, value]) => [name, {value}])),
      ),
  };

  async #call(method: 'POST' | 'PATCH' | 'DELETE', address: string, body?: JsonObject): Promise<void> {
    try {
      let answer = await this.#api.call(method, address, body);
      const [host, version] = address.split('/');
      while (/operations\/\d+$/.test(String(answer.name)) && answer.done !== true)
        answer = await this.#api.call('GET', `${host}/${version}/${answer.name}`);
    } catch (error) {
      if (!(error instanceof GoogleError)) throw error;
      throw new Error(`googleapi: Error ${error.code}: ${error.reason}`);
    }
  }
}

/** Addresses of the resources of terraform/ that a destroy leaves. */
function abandonedOf(): Set<string> {
  const texts = globSync(`${ROOT}terraform/*.tf`).map(file => readFileSync(file, 'utf8'));
  const blocks = texts.flatMap(text => [...text.matchAll(/^resource "(\w+)" "(\w+)" \{\n(.*?)^\}/gms)]);
  return new Set(
    blocks.flatMap(([, type, name, body = '']) =>
      /deletion_policy += "ABANDON"/.test(body) ? [`${type}.${name}`] : [],
    ),
  );
}
