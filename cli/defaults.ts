/** Where `gleaner local up` serves and keeps its things unless told otherwise, and where the other commands look for it. */
export const DEFAULT_PORT = 8790;
export const DEFAULT_DIR = '.gleaner/local';
