import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge, Button, Choice, complain, confirm, Form, say, TextField, words } from '../../ui';
import { nameOf, put, type Setting } from './data';
import { t } from './texts';

/** A setting: what it means, what is in force, and how to change that. */
export function Row({ setting, done }: { setting: Setting; done: () => void }): JSX.Element {
  const w = t();
  const [isEdited, setEdited] = useState(false);
  const name = nameOf(setting);
  /**
   * A secret that is set is not known here: nothing brings it back, so that its end is asked about.
   */
  const isLost = setting.secret === true && setting.value !== null;
  /** Changes it; what was set before can be brought back. */
  const change = async (value: string | null) => {
    const before = setting.value;
    const work = async () => {
      await put(setting, value);
      const undo = isLost ? undefined : () => put(setting, before).then(done);
      say(
        value === null ? w.removed(name) : setting.restart ? w.savedRestart(name) : w.saved(name),
        undo,
      );
      setEdited(false);
      done();
    };
    if (!isLost) return work();
    await confirm({
      title: w.lostTitle(name),
      text: w.lostText,
      action: value === null ? w.unset : words().save,
      work,
    });
  };
  return (
    <div class="configuration-row">
      <div class="configuration-what">
        <div class="row-of">
          <strong class="mono">{setting.key}</strong>
          {setting.secret && <Badge>{w.secret}</Badge>}
          {setting.file_only && (
            <span title={w.fileOnlyHint}>
              <Badge>{w.fileOnly}</Badge>
            </span>
          )}
          {setting.restart && (
            <span title={w.restartHint}>
              <Badge kind="warn">{w.restart}</Badge>
            </span>
          )}
        </div>
        {setting.help && <p class="soft">{setting.help}</p>}
      </div>
      {isEdited ? (
        <Edit setting={setting} save={change} onClose={() => setEdited(false)} />
      ) : (
        <div class="configuration-value">
          <Value setting={setting} />
          {setting.section !== 'admins' && !setting.file_only && (
            <span class="configuration-acts">
              {setting.value !== null && (
                <Button
                  kind="plain"
                  icon={setting.default === null ? 'remove' : 'reload'}
                  label={`${setting.default === null ? w.unset : w.toDefault}: ${name}`}
                  onClick={() => change(null).catch(complain)}
                />
              )}
              <Button
                kind="plain"
                icon="edit"
                label={w.edit(name)}
                onClick={() => setEdited(true)}
              />
            </span>
          )}
        </div>
      )}
    </div>
  );
}

function Value({ setting }: { setting: Setting }): JSX.Element {
  const w = t();
  const { value, default: usual, secret } = setting;
  const said = (text: string) =>
    text === '' ? <span class="soft">{w.empty}</span> : <code>{text}</code>;
  if (value === null)
    return (
      <span class="configuration-text soft">{usual === null ? w.noDefault : said(usual)}</span>
    );
  return (
    <span class="configuration-text">
      {secret ? (
        <span role="img" aria-label={w.secret}>
          ••••••••
        </span>
      ) : (
        said(value)
      )}
      {usual !== null && value !== usual && (
        <small class="soft">
          {w.default} {said(usual)}
        </small>
      )}
    </span>
  );
}

function Edit({
  setting,
  save,
  onClose,
}: {
  setting: Setting;
  save: (value: string) => Promise<void>;
  onClose: () => void;
}): JSX.Element {
  const w = t();
  const now = setting.secret ? '' : (setting.value ?? setting.default ?? '');
  const [value, setValue] = useState(now);
  const choices = setting.kind === 'bool' ? ['true', 'false'] : (setting.choices ?? []);
  const isChoice = choices.length > 0 && choices.includes(now);
  return (
    <div class="configuration-edit" onKeyDown={(event) => event.key === 'Escape' && onClose()}>
      <Form onSubmit={() => save(value)} submit={words().save} onCancel={onClose}>
        {isChoice ? (
          <Choice
            label={w.value}
            value={value}
            of={choices.map((each) => [each, each] as const)}
            onChange={setValue}
          />
        ) : (
          <TextField
            label={w.value}
            type={setting.secret ? 'password' : 'text'}
            value={value}
            onInput={setValue}
            hint={setting.secret ? w.secretHint : w.kinds[setting.kind]}
            autocomplete={setting.secret ? 'new-password' : 'off'}
            focus
          />
        )}
      </Form>
    </div>
  );
}
