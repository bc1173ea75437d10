/** Lock file of a package that needs a part of the repository's packages. */

/** The package.json that the buildpack of Cloud Functions installs. */
export type Manifest = {
  name: string;
  version: string;
  private: true;
  type: 'module';
  main: string;
  dependencies: Record<string, string>;
};

type Locked = {
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  optional?: boolean;
  dev?: boolean;
};
/** package-lock.json of npm 7 and later: places such as `node_modules/a/node_modules/b`. */
type PackageLock = {lockfileVersion: number; packages: Record<string, Locked>};

/** Lock file of a package: the entries of `whole` that its dependencies reach, each at its place. */
export function lockOf(manifest: Manifest, whole: PackageLock): PackageLock & Omit<Manifest, 'dependencies'> {
  const {dependencies, ...described} = manifest;
  const reached = new Set<string>();
  const open = Object.keys(dependencies).map(name => placeOf(name, '', whole));
  for (let place = open.pop(); place !== undefined; place = open.pop()) {
    if (reached.has(place)) continue;
    reached.add(place);
    const {dependencies: needed, optionalDependencies} = whole.packages[place] ?? {};
    for (const name of Object.keys({...needed, ...optionalDependencies}))
      open.push(placeOf(name, place, whole));
  }
  const {name, version} = manifest;
  const packages: PackageLock['packages'] = {'': {...{name, version}, dependencies}};
  for (const place of [...reached].sort()) {
    const {dev: _dev, ...entry} = whole.packages[place] ?? {};
    packages[place] = entry;
  }
  return {...described, lockfileVersion: whole.lockfileVersion, packages};
}

/** Place of a dependency as Node resolves it: in the package that needs it, or in a folder further up. */
function placeOf(name: string, dependent: string, {packages}: PackageLock): string {
  for (
    let folder = dependent;
    ;
    folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/node_modules/')))
  ) {
    const place = `${folder}${folder && '/'}node_modules/${name}`;
    if (packages[place]) return place;
    if (folder === '')
      throw new Error(`Failed to lock ${name}: package-lock.json has no such package; run \`npm install\``);
  }
}
