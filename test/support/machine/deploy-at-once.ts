/** `gleaner deploy` with a clock that steps in place of a wait, and a lock file of its own. */
import {type DeployOptions, deploy} from '../../../cli/deploy/deploy.ts';
import {GleanerCommand} from '../../../cli/terminal/command.ts';
import {complain} from '../../../client/text/output.ts';

export async function deployAtOnce(lock_file: string, args: string[]): Promise<void> {
  let now_ms = Date.parse('2026-11-25T10:00:00Z');
  const clock = {
    now: () => now_ms,
    sleep: async (seconds: number) => {
      now_ms += seconds * 1000;
    },
  };
  const command = new GleanerCommand('deploy').argument('[settings]').option('--plan').option('--yes').json();
  command.option('--artifacts <sha256>');
  command.action(async (file: string | undefined, options: DeployOptions) => {
    try {
      await deploy(file, options, {clock, lock_file});
    } catch (error) {
      complain(`gleaner: ${(error as Error).message}`);
      process.exitCode = 1;
    }
  });
  await command.parseAsync(args, {from: 'user'});
}
