/** Proxies of the environment. Loopback never uses one, because the processes of a local cloud call each other there. */

const LOOPBACK = ['127.0.0.1', 'localhost', '::1', '[::1]'];

/** True for an environment that names a proxy. */
export function hasProxy(env: Readonly<Record<string, string | undefined>>): boolean {
  return Object.entries(env).some(([name, value]) => value && /^(https?|all|grpc)_proxy$/i.test(name));
}

/** The environment, with loopback excluded from its proxies. Libraries read different spellings of the variable. */
export function withDirectLoopback<T extends Readonly<Record<string, string | undefined>>>(env: T): T {
  if (!hasProxy(env)) return env;
  const given = [env.no_proxy, env.NO_PROXY, env.no_grpc_proxy].flatMap(list => list?.split(',') ?? []);
  const names = [...new Set(given.map(name => name.trim()).filter(Boolean))];
  // A star excludes every address, but only if it stands alone.
  const direct = names.includes('*') ? '*' : [...new Set([...names, ...LOOPBACK])].join(',');
  return {
    ...env,
    no_proxy: direct,
    NO_PROXY: direct,
    // The gRPC library does not support the star.
    no_grpc_proxy: [...new Set([...names, ...LOOPBACK])].filter(name => name !== '*').join(','),
  };
}
