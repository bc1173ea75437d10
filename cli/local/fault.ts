import {faultHelp} from '../../emulator/faults.ts';
import {type CloudOptions, runningCloud} from '../cloud/connect.ts';
import {CliError} from '../terminal/errors.ts';
import {printText} from '../terminal/output.ts';

export async function fault(kind: string, target: string, options: CloudOptions): Promise<void> {
  if (kind === 'help') return printText(faultHelp.split('\n'));
  const info = await runningCloud(options);
  const response = await fetch(`${info.url}/_local/faults`, {
    method: 'POST',
    headers: {'content-type': 'application/json', authorization: `Bearer ${info.token}`},
    body: JSON.stringify({kind, target}),
  });
  const body = (await response.json()) as {done?: string; error?: {message?: string}};
  if (!response.ok)
    throw new CliError(
      body.error?.message ?? `Failed to inject the fault: the local cloud answered ${response.status}`,
    );
  printText([body.done ?? '']);
}
