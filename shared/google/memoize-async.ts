/**
 * `make`, run at the first call only. Google's clients take 0.1 to 0.3 s each to load, so a function that starts cold
 * loads those it uses. A failure is not kept: the next call tries again.
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
