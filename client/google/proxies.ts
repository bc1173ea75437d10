/** Sends the requests of this process through the proxies of the environment, but for loopback. */
import * as http from 'node:http';
import {hasProxy, withDirectLoopback} from '../../emulator/http/proxies.ts';
import {CliError} from '../text/errors.ts';

/** Returns a function that restores the requests. A Node that cannot use proxies sends them directly. */
export function useProxies(env: NodeJS.ProcessEnv): () => void {
  Object.assign(env, withDirectLoopback(env));
  return env.NODE_USE_ENV_PROXY !== '1' && canUseProxies(env) ? http.setGlobalProxyFromEnv(env) : () => {};
}

/** Throws `CliError` for a Node that ignores the proxy of the environment. */
export function requireProxies(env: NodeJS.ProcessEnv): void {
  if (hasProxy(env) && !canUseProxies(env))
    throw new CliError(
      `A proxy is set, and Node ${process.version} uses it only with NODE_USE_ENV_PROXY=1: set this variable, or install Node 24.14 or later`,
    );
}

function canUseProxies(env: NodeJS.ProcessEnv): boolean {
  return env.NODE_USE_ENV_PROXY === '1' || typeof http.setGlobalProxyFromEnv === 'function';
}
