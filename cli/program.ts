/** The commands of `gleaner` with their arguments and options. The code of a command is loaded when it runs. */
import type {Command} from 'commander';
import {setTyped, startOf} from '../client/text/hints.ts';
import {forgetCloud, setQuiet} from '../client/text/output.ts';
import {printableLines} from '../shared/contracts/printable.ts';
import {addCloudCommands, addCompletionCommands, addSettingsCommands} from './commands/clouds.ts';
import {addJobCommands} from './commands/jobs.ts';
import {addLogCommands} from './commands/logs.ts';
import {addModelCommands} from './commands/models.ts';
import {addHostCommands, addPoolCommands, addPriceCommands} from './commands/pools.ts';
import {addRunCommands, addRunGroup, addShortForms} from './commands/runs.ts';
import {addStreamCommands} from './commands/streams.ts';
import {addTpuCommands} from './commands/tpus.ts';
import {GleanerCommand} from './terminal/command.ts';
import {versionText} from './terminal/version.ts';

export function gleanerProgram(): GleanerCommand {
  const program = programOfWork();
  addCompletionCommands(program, programOfWork);
  return program;
}

/** Commands in the order of the help. */
const GROUPS: {title: string; add: ((program: GleanerCommand) => void)[]}[] = [
  {
    title: 'Work:',
    add: [addStreamCommands, addModelCommands, addRunGroup, addShortForms, addRunCommands, addJobCommands],
  },
  {title: 'TPUs:', add: [addTpuCommands, addPoolCommands, addPriceCommands, addHostCommands]},
  {title: 'See what happens:', add: [addLogCommands]},
  {title: 'Clouds and settings:', add: [addCloudCommands, addSettingsCommands]},
];

/** Every command except the completion of shells, which describes these. */
function programOfWork(): GleanerCommand {
  const program = new GleanerCommand('gleaner')
    .description('LLM activation extraction on spare Cloud TPUs')
    .version(versionText())
    .showHelpAfterError('(add --help for the options)')
    // Usage errors quote arguments, which may contain control characters.
    .configureOutput({writeErr: text => process.stderr.write(printableLines(text))})
    .hook('preAction', (_, command) => {
      const {quiet, cloud, port, dir} = command.opts();
      setQuiet(quiet === true);
      forgetCloud();
      setTyped({start: startOf(process.env), cloud: {cloud, port, dir}, program});
      command.setOptionValue('changes', (command as GleanerCommand).isChange());
    });
  for (const {title, add} of GROUPS) {
    program.commandsGroup(title);
    for (const each of add) each(program);
  }
  for (const command of leavesOf(program))
    command.option('--quiet', 'print results and errors alone, without progress');
  return program;
}

/** Commands without subcommands. */
export function leavesOf(command: Command): GleanerCommand[] {
  return command.commands.length === 0 ? [command as GleanerCommand] : command.commands.flatMap(leavesOf);
}
