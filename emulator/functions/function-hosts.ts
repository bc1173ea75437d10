import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import type {Route} from '../http/http.ts';
import {accountsOf, type Identities} from '../http/identity.ts';
import type {CloudAddress} from '../state/cloud-address.ts';
import {MetadataServer} from '../vm/metadata.ts';
import {functionEnvironment} from './environment.ts';
import {FunctionHost} from './functions.ts';
import type {Deployment, Subscription} from './subscriptions.ts';
import type {FunctionTrigger} from './triggers.ts';

/** The process that serves the functions. */
export type FunctionProcess = {
  /** Script to fork; by default `function-host.ts`. */
  entry: string;
  /** Module that registers the functions; by default `functions/index.ts`. */
  module: string;
  /** Variables on top of `functionEnvironment`. */
  env?: Record<string, string> | ((where: CloudAddress, deployment: Deployment) => Record<string, string>);
};

export type FunctionHostsOptions = {
  options: FunctionProcess;
  deployments: Deployment[];
  triggers: FunctionTrigger[];
  where: CloudAddress;
  token: string;
  identities: Identities;
  log: (source: string, text: string) => void;
  trouble: (error: unknown) => void;
  /** Called when the functions of a deployment listen on new ports. */
  listening?: ((deployment: string) => Promise<void>) | undefined;
};

/** One process for the functions of each deployment, and the metadata server of its account. */
export class FunctionHosts {
  readonly #hosts: Map<string, FunctionHost>;
  readonly #metadata: Map<string, MetadataServer>;
  readonly #trouble: FunctionHostsOptions['trouble'];

  constructor(given: FunctionHostsOptions) {
    const {options, deployments, triggers, where, token, identities, log, listening} = given;
    const {entry, module, env} = options;
    const extra = (deployment: Deployment) =>
      typeof env === 'function' ? env(where, deployment) : (env ?? {});
    const {project} = where;
    const vm = {
      id: '1',
      name: 'functions',
      zone: 'us-central1-a',
      machine_type: '',
      address: '127.0.0.1',
      attributes: {},
    };
    this.#trouble = given.trouble;
    this.#metadata = new Map(
      deployments.map(({name}) => {
        const {control: email, 'worker-api': api} = accountsOf(project, name);
        return [name, new MetadataServer({...vm, email}, {project, token, identities, accounts: [api]})];
      }),
    );
    const proofsOf = (name: string) => ({
      ticket_key: identities.ticket_key,
      metadata_host: this.#metadata.get(name)?.host ?? '',
    });
    this.#hosts = new Map(
      deployments.map(deployment => {
        const {name} = deployment;
        const source = name === DEFAULT_DEPLOYMENT ? 'functions' : `functions of ${name}`;
        const host = new FunctionHost({
          ...{deployment: name, entry, module, triggers, token},
          env: () => ({
            ...functionEnvironment(where, deployment, token, proofsOf(name)),
            ...extra(deployment),
          }),
          log: text => log(source, text),
          listening: listening && (() => listening(name)),
        });
        return [name, host];
      }),
    );
  }

  portOf({deployment, function: name}: Pick<Subscription, 'deployment' | 'function'>): number | undefined {
    return this.#hosts.get(deployment)?.portOf(name);
  }

  /** Routes of the HTTP functions of every deployment. */
  routes(): Route[] {
    return [...this.#hosts.values()].flatMap(host => host.routes());
  }

  async start(): Promise<void> {
    await Promise.all([...this.#metadata.values()].map(server => server.start(this.#trouble)));
    await Promise.all([...this.#hosts.values()].map(host => host.start()));
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#hosts.values()].map(host => host.stop()));
    await Promise.all([...this.#metadata.values()].map(server => server.stop()));
  }
}
