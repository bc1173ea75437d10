/** The middle, smallest and largest of the values: `4.0 (3.1 to 4.3)`. */
export function spread(values: readonly number[], digits: number): string {
  const sorted = values.toSorted((a, b) => a - b);
  const text = (value = Number.NaN) => value.toFixed(digits);
  return `${text(sorted[Math.floor(sorted.length / 2)])} (${text(sorted[0])} to ${text(sorted.at(-1))})`;
}
