import {Argument, type Command} from 'commander';
import {dir, examples, json, port} from '../terminal/arguments.ts';

/** Registers `gleaner config`. */
export function addSettingsCommands(program: Command): void {
  const config = program.command('config').description('settings of the commands');
  config
    .command('show')
    .description('show which cloud, bucket and documents the commands use, and the settings of changed pools')
    .option('--show-origin', 'show where each value comes from: an option, a variable, a file or a default')
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .addHelpText('after', examples('gleaner config show --show-origin', 'gleaner config show --json'))
    .action(async options => (await import('../config.ts')).showConfig(options));
}

/** Registers the completion of shells. `others` builds a program of all other commands. */
export function addCompletionCommands(program: Command, others: () => Command): void {
  program
    .command('completion')
    .description('print the completion script of a shell')
    .addArgument(new Argument('<shell>', 'shell').choices(['bash', 'zsh', 'fish']))
    .addHelpText(
      'after',
      examples(
        'source <(gleaner completion bash)    # in ~/.bashrc, with the package bash-completion',
        'source <(gleaner completion zsh)     # in ~/.zshrc, after compinit',
        'gleaner completion fish | source     # in ~/.config/fish/config.fish',
      ),
    )
    .action(async shell => (await import('../completion.ts')).printScript(shell));
  program
    .command('complete', {hidden: true})
    .description('print the words that may come next; completion scripts call it')
    .argument('[words...]', 'words of the command line, after --')
    .action(async words => (await import('../completion.ts')).printSuggestions(others(), words));
}
