/** Resolves at the first SIGINT (Ctrl-C), SIGTERM or SIGHUP. */
export function stopSignal(): Promise<void> {
  return new Promise(resolve => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve());
  });
}

/** Is aborted at the first of these signals. */
export function abortedAtStop(): AbortSignal {
  const controller = new AbortController();
  void stopSignal().then(() => controller.abort());
  return controller.signal;
}
