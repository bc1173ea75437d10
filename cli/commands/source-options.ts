import {type Command, Option} from 'commander';
import {folder, positive, text} from '../terminal/arguments.ts';

/** Options that name the code of a job or a pool, and its environment. */
export function addSourceOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--bundle <folder>', 'folder of code: packed, and stored in the bucket')
        .argParser(folder)
        .conflicts(['repo', 'branch', 'pr', 'commit']),
    )
    .option('--repo <url>', 'https address of a git repository', text)
    .addOption(
      new Option('--branch <branch>', 'newest commit of a branch')
        .argParser(text)
        .conflicts(['pr', 'commit']),
    )
    .addOption(
      new Option('--pr <n>', 'newest commit of a pull request').argParser(positive).conflicts('commit'),
    )
    .option('--commit <sha>', 'commit, 40 hexadecimal digits', text)
    .option('--jax-version <version>', 'newest, nightly or X.Y.Z; none: the locked one', text)
    .option('--setup-script <file>', 'shell script that runs once on each host, or none', text)
    .option('--config <file>', 'file that code finds under $JOB_CONFIG, or none', text)
    .option('--ramfs-dir <folder>', 'folder in memory, such as /mnt/ramfs, or none', text);
}
