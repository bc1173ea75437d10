import suggestions from '@bomb.sh/tab';
import tab from '@bomb.sh/tab/commander';
import type {Command} from 'commander';

/** Prints the completion script of a shell. The script asks `gleaner complete` at each press of the key. */
export function printScript(shell: string): void {
  suggestions.setup('gleaner', 'gleaner', shell);
}

/** Prints the words that may come next, with their descriptions. `words` ends with the word that is being typed. */
export function printSuggestions(program: Command, words: string[]): void {
  tab(program, {completionCommandName: 'completion'}).parse(words);
}
