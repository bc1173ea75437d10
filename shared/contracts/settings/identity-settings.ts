/** Settings that identify the callers of worker-api. A function checks a setting when it uses it: see `required`. */
import {z} from 'zod';
import {ConfigError} from '../errors.ts';

const account = z
  .string()
  .regex(/^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$/, 'the e-mail address of a service account')
  .optional();

/** True for an address that only this machine can answer. */
const isOnThisMachine = (text: string) =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(URL.parse(text)?.hostname ?? '');

export const identityEnvironment = {
  /** Account of the workers' VMs, which may say hello, lease, send heartbeats and release. */
  GLEANER_WORKER_SERVICE_ACCOUNT: account,
  /** Account of on-tick, which may ping worker-api and nothing else. */
  GLEANER_CONTROL_SERVICE_ACCOUNT: account,
  /** Key of the tickets: on-tpu makes tickets with it, and worker-api checks them. */
  GLEANER_TICKET_KEY: z
    .string()
    .trim()
    .regex(/^[\x21-\x7e]{32,}$/, 'at least 32 printable characters')
    .optional(),
  /** Certificates of a local cloud for its identity tokens, instead of Google's. */
  GLEANER_OIDC_CERTS: z.string().refine(isOnThisMachine, 'an address on this machine').optional(),
  /** Google's name for the address of the metadata server. */
  GCE_METADATA_HOST: z.string().min(1).default('metadata.google.internal'),
  /** Account of worker-api on a local cloud, where one metadata server serves all functions. Default: the account of the process. */
  GLEANER_API_SERVICE_ACCOUNT: account,
  /** Cloud Run sets this variable in every container. */
  K_SERVICE: z.string().optional(),
};

type Environment = z.infer<z.ZodObject<typeof identityEnvironment>> & {GLEANER_DEPLOYMENT: string};

export type IdentitySettings = ReturnType<typeof identityOf>;

export function identityOf(v: Environment) {
  return {
    /** Part of every ticket, so that a ticket is invalid in other deployments. */
    deployment: v.GLEANER_DEPLOYMENT,
    worker_account: v.GLEANER_WORKER_SERVICE_ACCOUNT,
    control_account: v.GLEANER_CONTROL_SERVICE_ACCOUNT,
    ticket_key: v.GLEANER_TICKET_KEY,
    api_account: v.GLEANER_API_SERVICE_ACCOUNT ?? 'default',
    certs: v.GLEANER_OIDC_CERTS,
    metadata_host: v.GCE_METADATA_HOST,
    /** Cloud Run has checked the signature of each token and has removed it. */
    is_on_cloud_run: Boolean(v.K_SERVICE),
  };
}

const VARIABLES = {
  worker_account: ['GLEANER_WORKER_SERVICE_ACCOUNT', 'the account of the workers'],
  control_account: ['GLEANER_CONTROL_SERVICE_ACCOUNT', 'the account of on-tick'],
  ticket_key: ['GLEANER_TICKET_KEY', 'the key of the tickets, at least 32 printable characters'],
} as const;

type Setting = keyof typeof VARIABLES;

/** Returns settings that `user` needs. Throws `ConfigError`, which names each missing variable. */
export function required<S extends Setting>(settings: IdentitySettings, user: string, names: readonly S[]) {
  const missing = names.filter(name => settings[name] === undefined);
  if (missing.length > 0) {
    const lines = missing.map(name => `  ${VARIABLES[name].join(': ')}`);
    throw new ConfigError(`Failed to start ${user}. Set these variables:\n${lines.join('\n')}`);
  }
  return Object.fromEntries(names.map(name => [name, settings[name]])) as Record<S, string>;
}
