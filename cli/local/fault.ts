import {type CloudOptions, runningCloud} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {printText} from '../../client/text/output.ts';
import {faultHelp} from '../../emulator/state/faults.ts';

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
