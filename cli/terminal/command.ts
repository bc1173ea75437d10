/** A command of gleaner: the options that commands share, and options with the names of fields. */
import {Argument, Command, type ErrorOptions, Option} from 'commander';
import type {Fields} from '../../shared/domain/records/field.ts';
import {folder, NONE, portFrom} from './arguments.ts';
import {optionsOf} from './field-options.ts';

/** `--budget-usd` gives the field `budget_usd`. */
class FieldOption extends Option {
  override attributeName(): string {
    return this.name().replace(/^no-/, '').replaceAll('-', '_');
  }
}

/** Options and arguments of a command line. */
type Given = Record<string, unknown>;

/** Where the files of a local cloud may be that is stopped. */
export const RUNNING_OR_STOPPED = 'folder of a local cloud, running or stopped';

export class GleanerCommand extends Command {
  #hint: string | undefined;
  #changes: ((options: Given) => boolean) | undefined;

  override createCommand(name?: string): GleanerCommand {
    return new GleanerCommand(name);
  }

  override createOption(flags: string, description?: string): Option {
    return new FieldOption(flags, description);
  }

  override setOptionValueWithSource(
    ...[key, value, source]: Parameters<Command['setOptionValueWithSource']>
  ) {
    return super.setOptionValueWithSource(key, value === NONE ? null : value, source);
  }

  about(name: string, description: string): GleanerCommand {
    return this.command(name).description(description);
  }

  /** `--cloud`, or `--port` and `--dir` of a local cloud; and `--json`. */
  onCloud(about = 'folder of a local cloud', json?: string): this {
    return this.cloud().port().dir(about).json(json);
  }

  cloud(): this {
    return this.alone('--cloud <name>', 'cloud, as `gleaner cloud list` names it', ['port', 'dir']);
  }

  /** The command changes its cloud, except with `--dry-run`. `when`: whether these options and arguments change it. */
  changes(when: (options: Given) => boolean = () => true): this {
    this.#changes = when;
    return this;
  }

  /** True for a command that changes its cloud with some options. */
  mayChange(): boolean {
    return this.#changes !== undefined;
  }

  /** True if these options and arguments change the cloud. */
  isChange(): boolean {
    const options = this.opts();
    return options.dry_run !== true && this.#changes?.({...options, ...this.processedArgs}) === true;
  }

  port(): this {
    return this.option('--port <port>', 'port of the local cloud', portFrom(1));
  }

  dir(about: string): this {
    return this.option('--dir <folder>', about, folder);
  }

  json(about = 'print JSON for programs'): this {
    return this.option('--json', about);
  }

  dryRun(about = 'change nothing: print the gcloud commands'): this {
    return this.option('--dry-run', about);
  }

  /** `--no-check`: leaves out the checks before the command. */
  noCheck(about = 'do not check first whether the command can succeed'): this {
    return this.option('--no-check', about);
  }

  yes(): this {
    return this.option('--yes', 'do not ask');
  }

  choice(flags: string, about: string, choices: readonly string[], given?: string): this {
    return this.addOption(this.createOption(flags, about).choices(choices).default(given));
  }

  /** An option for each field of a table. `needed`: those that must be given. `hasTruth`: flags have a value. */
  fields(all: Fields, {needed = [], hasTruth = false}: {needed?: string[]; hasTruth?: boolean} = {}): this {
    for (const {name, flags, about, choices, parse} of optionsOf(all, hasTruth)) {
      const option = this.createOption(flags, about).makeOptionMandatory(needed.includes(name));
      this.addOption(choices ? option.choices(choices) : parse ? option.argParser(parse) : option);
    }
    return this;
  }

  /** An option that goes with none of the others. */
  alone(flags: string, about: string, others: string[], parse: (given: string) => unknown = String): this {
    const option = this.createOption(flags, about).conflicts(others);
    return this.addOption(/[<[]/.test(flags) ? option.argParser(parse) : option);
  }

  oneOf(name: string, about: string, values: readonly string[], given?: string): this {
    return this.addArgument(new Argument(name, about).choices(values).default(given));
  }

  /** Adds a hint to the refusal of an unknown option. */
  wordsAfterDashes(hint: string): this {
    this.#hint = hint;
    return this;
  }

  override error(message: string, options?: ErrorOptions): never {
    const isUnknown = options?.code === 'commander.unknownOption' && this.#hint !== undefined;
    return super.error(isUnknown ? `${message}\n(${this.#hint})` : message, options);
  }

  examples(...lines: string[]): this {
    return this.addHelpText('after', `\nExamples:\n${lines.map(line => `  ${line}`).join('\n')}`);
  }

  /** Publishes the message of the arguments and options, waits until it is applied, and prints its effect. */
  sends(messageOf: (...given: never[]) => object): this {
    return this.changes()
      .dryRun()
      .action(async (...given) => {
        const message = messageOf(...(given as never[]));
        await (await import('../../client/cloud/send-message.ts')).send(message, given.at(-2));
      });
  }
}
