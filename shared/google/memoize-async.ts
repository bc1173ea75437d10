/**
 * Runs `make` only at the first call. Loading one of Google's clients takes 0.1 to 0.3 s, so a cold function loads only the clients that it
 * uses. A failure is not remembered: the next call tries again.
 * * A client that is a CommonJS module is read from `default`, because a bundled chunk of such a module has no other export.
 */
export function memoizeAsync<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch(error => {
      made = undefined;
      throw error;
    });
    return made;
  };
}
