import type { EditorProps } from '../editor';
import { lazy } from '../lazy';

/** The editor of JSON and functions, fetched when it is first shown. */
export const Editor = lazy<EditorProps>(() => import('../editor'));
/** Two texts side by side. */
export const Compare = lazy(async () => ({ default: (await import('../editor')).Compare }));
