import { number, Obj, text } from '../../../json';
import type { Draft } from './draft';

export interface Attachment {
  name: string;
  type: string;
  size: number;
  digest: string;
}

export function attachmentHref(draft: Draft, name: string): string | undefined {
  return draft.href({ rev: draft.rev || undefined }, name);
}

export function listed(draft: Draft): Attachment[] {
  const all = draft.doc.value?.get('_attachments');
  if (!(all instanceof Obj)) return [];
  return [...all].map(([name, stub]) => {
    const of = stub instanceof Obj ? stub : new Obj();
    return {
      name,
      type: text(of.get('content_type')),
      size: number(of.get('length')),
      digest: text(of.get('digest')),
    };
  });
}
