import {mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';

/** Temporary folder of a test or a block: it is made at its first use, and again after its end, which may be a hook of mocha. */
export class Folder {
  #path: string | undefined;

  constructor(hook?: Mocha.HookFunction) {
    hook?.(() => this.end());
  }

  get path(): string {
    this.#path ??= mkdtempSync(join(tmpdir(), 'gleaner-test-'));
    return this.#path;
  }

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
    if (this.#path) rmSync(this.#path, {recursive: true, force: true});
    this.#path = undefined;
  }
}
