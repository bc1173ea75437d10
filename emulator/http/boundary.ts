/** Credential Access Boundaries: the rules of a narrowed token, and the permissions that each rule leaves. */
import {z} from 'zod';
import {parsedText} from '../../shared/contracts/printable.ts';

/** On objects, and `see` on a bucket itself. */
export type Right = 'create' | 'delete' | 'get' | 'list' | 'move' | 'see' | 'update';

/** Permissions in Google's predefined roles of Cloud Storage. */
const ROLES: Record<string, readonly Right[]> = {
  'inRole:roles/storage.bucketViewer': ['see'],
  'inRole:roles/storage.objectViewer': ['get', 'list'],
  'inRole:roles/storage.objectCreator': ['create'],
  'inRole:roles/storage.objectUser': ['create', 'delete', 'get', 'list', 'move', 'update'],
  'inRole:roles/storage.objectAdmin': ['create', 'delete', 'get', 'list', 'move', 'update'],
};
const BUCKET = /^\/\/storage\.googleapis\.com\/projects\/_\/buckets\/([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])$/;

const rule = z.strictObject({
  availableResource: z.string().regex(BUCKET, 'no bucket of Cloud Storage'),
  availablePermissions: z.array(z.enum(Object.keys(ROLES) as [string, ...string[]])).min(1),
  availabilityCondition: z
    .strictObject({
      expression: z.string().refine(text => clausesOf(text) !== undefined, 'no valid condition'),
      title: z.string().optional(),
      description: z.string().optional(),
    })
    .optional(),
});

/** The field `options` of an exchange, as JSON. */
export const boundaryOptions = z.strictObject({
  accessBoundary: z.strictObject({accessBoundaryRules: z.array(rule).min(1).max(10)}),
});

export type Boundary = z.infer<typeof boundaryOptions>['accessBoundary'];

/** A comparison with the name of the resource, or with the prefix of a list. */
type Clause = {of: 'name' | 'prefix'; is: 'equal' | 'start'; text: string};

const TEXT = /'[^'\\]*'|"(?:[^"\\]|\\.)*"/.source;
const CLAUSE = new RegExp(
  `^(?:resource\\.name == (?<equal>${TEXT})|(?<subject>resource\\.name|api\\.getAttribute\\('storage\\.googleapis\\.com/objectListPrefix', ''\\))\\.startsWith\\((?<start>${TEXT})\\))`,
  's',
);
const OR = ' || ';

/** The part of CEL that the functions write: comparisons of names and prefixes, joined by `||`. Undefined for anything else. */
function clausesOf(expression: string): Clause[] | undefined {
  const clauses: Clause[] = [];
  let rest = expression;
  for (;;) {
    const found = CLAUSE.exec(rest);
    if (!found) return undefined;
    const {equal, subject, start = ''} = found.groups ?? {};
    const text = textOf(equal ?? start);
    if (text === undefined) return undefined;
    const of = equal !== undefined || subject === 'resource.name' ? 'name' : 'prefix';
    clauses.push({of, is: equal === undefined ? 'start' : 'equal', text});
    rest = rest.slice(found[0].length);
    if (rest === '') return clauses;
    if (!rest.startsWith(OR)) return undefined;
    rest = rest.slice(OR.length);
  }
}

function textOf(literal: string): string | undefined {
  return literal.startsWith("'") ? literal.slice(1, -1) : (parsedText(literal) as string | undefined);
}

/** True if a rule leaves the right. `name`: of the object, or the prefix of a list. */
export function leaves({accessBoundaryRules}: Boundary, right: Right, bucket: string, name: string): boolean {
  const place = `projects/_/buckets/${bucket}`;
  const resource =
    right === 'list' || right === 'see'
      ? {name: place, prefix: name}
      : {name: `${place}/objects/${name}`, prefix: ''};
  return accessBoundaryRules.some(({availableResource, availablePermissions, availabilityCondition}) => {
    if (BUCKET.exec(availableResource)?.[1] !== bucket) return false;
    if (!availablePermissions.some(role => ROLES[role]?.includes(right))) return false;
    if (availabilityCondition === undefined) return true;
    return (clausesOf(availabilityCondition.expression) ?? []).some(({of, is, text}) =>
      is === 'equal' ? resource[of] === text : resource[of].startsWith(text),
    );
  });
}
