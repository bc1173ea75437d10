/** What a command says: its result on standard output, and whatever else on standard error. */

/** The result as one line of JSON, or as lines for a person. */
export function print(json: boolean | undefined, value: object, lines: readonly string[]): void {
  process.stdout.write(json ? `${JSON.stringify(value)}\n` : `${lines.map(printable).join('\n')}\n`);
}

/** A `Log` of what a reader finds wrong on its way. */
export function warn(severity: string, message: string): void {
  if (severity !== 'INFO') process.stderr.write(`${message}\n`);
}

/** `$1.24`; below a cent, what there is of it: `$0.0031`. */
export function dollarText(usd: number): string {
  const isSmall = usd > 0 && usd < 0.01;
  return `$${isSmall ? usd.toLocaleString('en-US', {maximumSignificantDigits: 2}) : usd.toFixed(2)}`;
}

/** Control characters of hostile names and messages never reach the terminal. */
export function printable(line: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to take out
  return line.replace(/[\u0000-\u001f\u007f-\u009f]/g, '�');
}
