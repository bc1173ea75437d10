/** Round trips under way at once: enough that they do not add up to minutes, and few enough for one small instance. */
const ABREAST = 32;

/** Does the work for each item, some at once. After a failure nothing more is begun, and the first one is thrown at the end. */
export async function abreast<T>(
  items: readonly T[],
  work: (item: T) => Promise<unknown>,
  width = ABREAST,
): Promise<void> {
  const left = items.values();
  const failures: unknown[] = [];
  const lane = async () => {
    for (const item of left) {
      if (failures.length > 0) return;
      await work(item).catch(error => failures.push(error));
    }
  };
  await Promise.all(Array.from({length: Math.min(width, items.length)}, lane));
  if (failures.length > 0) throw failures[0];
}
