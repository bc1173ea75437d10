/** A command of gleaner: the options that commands share, and options with the names of fields. */
import {createRequire} from 'node:module';
import {Argument, Command, type ErrorOptions, Option} from 'commander';
import type {Fields} from '../../shared/domain/records/field.ts';
import {folder, NONE, portFrom} from './arguments.ts';
import {optionsOf} from './field-options.ts';

const load = createRequire(import.meta.url);

/** `--budget-usd` gives the field `budget_usd`. */
class FieldOption extends Option {
  override attributeName(): string {
    return this.name().replace(/^no-/, '').replaceAll('-', '_');
  }
}

/** Options and arguments of a command line. */
type Given = Record<string, unknown>;

/** Commands that begin with the given word, or nearly have it. One that changes something is named only where no other is, for one slip. */
function nearCommands(given: string, commands: readonly Command[]): string[] {
  const {nearNames} = load(
    '../../shared/contracts/near-names.ts',
  ) as typeof import('../../shared/contracts/near-names.ts');
  const begins = (name: string) => name.startsWith(given);
  const near = nearNames(
    given,
    commands.map(command => command.name()),
  );
  const found = commands.filter(command => begins(command.name()) || near.includes(command.name()));
  const shown = found.filter(command => !(command instanceof GleanerCommand && command.mayChange()));
  if (shown.length > 0) return shown.map(command => command.name());
  const letters = (word: string) => [...word].sort().join('');
  const isSlip = (name: string) => nearNames(given, [name], 1).length > 0 || letters(name) === letters(given);
  return found.map(command => command.name()).filter(name => begins(name) || isSlip(name));
}

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
  onCloud(about?: string, json?: string): this {
    return this.namesCloud(about).json(json);
  }

  namesCloud(about = 'folder of a local cloud'): this {
    return this.cloud().option('--port <port>', 'port of the local cloud', portFrom(1)).dir(about);
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

  dir(about: string): this {
    return this.option('--dir <folder>', about, folder);
  }

  json(about = 'print JSON for programs'): this {
    return this.option('--json', about);
  }

  /** The command changes its cloud, except with this option. */
  dryRun(about = 'change nothing: print the gcloud commands'): this {
    this.#changes ??= () => true;
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

  /** In place of commander's own, whose guess for a command that shows something may be one that changes it. */
  unknownCommand(): never {
    const [given = ''] = this.args;
    const near = nearCommands(given, this.createHelp().visibleCommands(this));
    const guess = near.length > 0 ? `\n(Did you mean ${near.join(' or ')}?)` : '';
    return this.error(`error: unknown command '${given}'${guess}`, {code: 'commander.unknownCommand'});
  }

  examples(...lines: string[]): this {
    return this.addHelpText('after', `\nExamples:\n${lines.map(line => `  ${line}`).join('\n')}`);
  }

  /** Publishes the message of the arguments and options, waits until it is applied, and prints its effect. */
  sends(messageOf: (...given: never[]) => object): this {
    return this.dryRun().action(async (...given) => {
      const message = messageOf(...(given as never[]));
      await (await import('../../client/cloud/send-message.ts')).send(message, given.at(-2));
    });
  }
}
