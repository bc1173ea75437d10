import type {ObjectInfo} from '../../shared/ports/ports.ts';

export type StoredInfo = ObjectInfo & {bucket: string};
