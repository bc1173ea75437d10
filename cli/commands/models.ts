import {modelName, text, texts} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';

/** Registers `gleaner models …`. */
export function addModelCommands(program: GleanerCommand): void {
  program
    .about('models', 'copy models into the bucket')
    .about(
      'mirror',
      'copy a model of a hub to the bucket, at one commit; a run of the copy needs no internet',
    )
    .argument('<model>', 'model of a hub, such as Qwen/Qwen2.5-0.5B', modelName)
    .option('--revision <revision>', 'branch, tag or commit (default: main)', text)
    .option('--path <pattern>', 'copy only these files of SAEs; * is in a name, ** in folders too', texts)
    .onCloud('folder of a running local cloud')
    .changes()
    .examples(
      'gleaner models mirror Qwen/Qwen2.5-0.5B',
      'gleaner models mirror meta-llama/Llama-3.1-8B --revision v1.0',
      "gleaner models mirror google/gemma-scope-2-4b-pt --path 'resid_post_all/layer_*_width_16k_l0_small/*'",
    )
    .action(async (model, options) => (await import('../models/mirror.ts')).mirror(model, options));
}
