let first: Promise<void> | undefined;

/** Resolves at the first SIGINT (Ctrl-C), SIGTERM or SIGHUP. A second one ends the process at once. */
export function stopSignal(): Promise<void> {
  first ??= new Promise(resolve => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve());
  });
  return first;
}

export function abortedAtStop(): AbortSignal {
  const controller = new AbortController();
  void stopSignal().then(() => controller.abort());
  return controller.signal;
}
