/** Sends the requests of this process through the proxies of the environment, but for loopback. */
import * as http from 'node:http';
import {withDirectLoopback} from '../shared/google/proxies.ts';
import {CliError} from './terminal/errors.ts';

/** Returns a function that restores the requests. Throws `CliError` for a Node that cannot use a proxy. */
export function useProxies(env: NodeJS.ProcessEnv): () => void {
  Object.assign(env, withDirectLoopback(env));
  // Node does so by itself.
  if (env.NODE_USE_ENV_PROXY === '1') return () => {};
  if (typeof http.setGlobalProxyFromEnv !== 'function')
    throw new CliError(
      `A proxy is set, and Node ${process.version} uses it only with the variable NODE_USE_ENV_PROXY=1: set it, or install Node 24.14 or later`,
    );
  return http.setGlobalProxyFromEnv(env);
}
