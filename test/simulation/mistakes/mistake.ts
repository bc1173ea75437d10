import type {Edit} from '../edits.ts';

export type Mistake = {
  name: string;
  class: 'lose' | 'double' | 'leak' | 'overspend' | 'stick' | 'blame' | 'forge';
  edits: Edit[];
};
