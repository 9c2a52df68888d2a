import type { JSX } from 'preact';
import { complain } from '../../../ui';
import { Lists } from '../permissions/lists';
import { accessOf, changed, having, type Right, written } from './access';
import type { Draft } from './draft';
import { put } from './source';
import { say } from './texts';

/** Who may read and write the document. */
export function Sharing({
  draft,
  onSave,
}: {
  draft: Draft;
  onSave: () => Promise<void>;
}): JSX.Element {
  const t = say();
  const access = accessOf(draft.doc.value);
  const mayEdit = !draft.isDirty.value;
  const lists = (right: Right, title: string, hint: string) => (
    <Lists
      title={title}
      hint={hint}
      values={(kind) => having(access, right, kind)}
      known={undefined}
      mayEdit={mayEdit}
      onChange={(kind, list) => {
        const next = written(changed(access, right, kind, list));
        draft.write(put(draft.now, '_access', next));
        return onSave().catch(complain);
      }}
    />
  );
  return (
    <>
      {!mayEdit && <p class="notice">{t.saveFirst}</p>}
      <div class="halves">
        {lists('write', t.canWrite, t.canWriteHint)}
        {lists('read', t.canRead, t.canReadHint)}
      </div>
    </>
  );
}
