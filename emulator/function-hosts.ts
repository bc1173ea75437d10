import {functionEnvironment, type Proofs, type Where} from './environment.ts';
import {FunctionHost} from './functions.ts';
import type {Route} from './http.ts';
import type {LocalCloudOptions} from './options.ts';
import {DEFAULT_DEPLOYMENT, type Deployment, type Subscription} from './subscriptions.ts';
import type {FunctionTrigger} from './triggers.ts';

export type FunctionHostsOptions = {
  options: Required<Pick<NonNullable<LocalCloudOptions['function_host']>, 'entry' | 'module'>> &
    Pick<NonNullable<LocalCloudOptions['function_host']>, 'env'>;
  deployments: Deployment[];
  triggers: FunctionTrigger[];
  where: Where;
  token: string;
  /** By the name of the deployment. */
  proofs: ReadonlyMap<string, Proofs>;
  log: (source: string, text: string) => void;
  /** Called when the functions of a deployment listen on new ports. */
  listening?: ((deployment: string) => Promise<void>) | undefined;
};

/** One process for the functions of each deployment. */
export class FunctionHosts {
  readonly #hosts: Map<string, FunctionHost>;

  constructor({options, deployments, triggers, where, token, proofs, log, listening}: FunctionHostsOptions) {
    const {entry, module, env} = options;
    const extra = (deployment: Deployment) =>
      typeof env === 'function' ? env(where, deployment) : (env ?? {});
    const proofsOf = (name: string): Proofs => {
      const known = proofs.get(name);
      if (!known) throw new Error(`Deployment ${name} has no metadata server`);
      return known;
    };
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

  portOf({deployment, function: name}: Subscription): number | undefined {
    return this.#hosts.get(deployment)?.portOf(name);
  }

  /** Routes of HTTP functions. The default deployment comes last, because its names have no prefix. */
  routes(): Route[] {
    const names = [...this.#hosts.keys()].toSorted(
      (one, other) => Number(one === DEFAULT_DEPLOYMENT) - Number(other === DEFAULT_DEPLOYMENT),
    );
    return names.flatMap(name => this.#hosts.get(name)?.routes() ?? []);
  }

  async start(): Promise<void> {
    await Promise.all([...this.#hosts.values()].map(host => host.start()));
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#hosts.values()].map(host => host.stop()));
  }
}
