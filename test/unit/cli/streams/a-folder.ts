import {mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';

/** Temporary folder of a test. */
export class Folder {
  readonly path = mkdtempSync(join(tmpdir(), 'gleaner-streams-'));

  put(name: string, content: string | Uint8Array): string {
    const file = this.at(name);
    mkdirSync(dirname(file), {recursive: true});
    writeFileSync(file, content);
    return file;
  }

  at(name: string): string {
    return join(this.path, name);
  }

  names(name = '.'): string[] {
    return readdirSync(this.at(name)).sort();
  }

  text(name: string): string {
    return readFileSync(this.at(name), 'utf8');
  }

  /** Content of each stream of a folder. */
  streams(name: string): string[] {
    const files = this.names(name).filter(file => file.startsWith('stream_'));
    return files.map(file => this.text(join(name, file)));
  }

  end(): void {
    rmSync(this.path, {recursive: true, force: true});
  }
}
