import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../api';
import { count } from '../../i18n';
import { link, place, refine } from '../../router';
import {
  Button,
  Check,
  Dialog,
  Empty,
  Form,
  Loading,
  Problem,
  say,
  TextField,
  words,
} from '../../ui';
import { fits, load, nameOf, put, type Setting } from './data';
import { Row } from './row';
import { t } from './texts';

export function Settings(): JSX.Element {
  const w = t();
  const { data, error, reload } = useResource('settings', load);
  const [isNew, setNew] = useState(false);
  const query = place.value.query;
  const [search, only, isSet] = [
    query.get('q') ?? '',
    query.get('section') ?? '',
    query.has('set'),
  ];
  if (!data) return error === undefined ? <Loading /> : <Problem error={error} retry={reload} />;
  const sections = [...new Set(data.all.map((setting) => setting.section))];
  const shown = data.all.filter(
    (setting) =>
      (!only || setting.section === only) &&
      (!isSet || setting.value !== null) &&
      fits(setting, search),
  );
  return (
    <>
      <div class="bar">
        <input
          type="search"
          aria-label={w.search}
          placeholder={words().search}
          value={search}
          onInput={(event) => refine({ q: event.currentTarget.value })}
        />
        <select
          class="narrow"
          aria-label={w.section}
          value={only}
          onChange={(event) => refine({ section: event.currentTarget.value })}
        >
          <option value="">{w.allSections}</option>
          {sections.map((section) => (
            <option key={section} value={section} selected={section === only}>
              {section}
            </option>
          ))}
        </select>
        {data.isTold && (
          <Check
            label={w.onlySet}
            value={isSet}
            onChange={(is) => refine({ set: is ? '1' : undefined })}
          />
        )}
        <span class="soft" role="status">
          {words().rows(count(shown.length))}
        </span>
        <span class="grow" />
        <Button icon="add" onClick={() => setNew(true)}>
          {w.add}
        </Button>
      </div>
      <Problem error={error} retry={reload} />
      {!data.isTold && <p class="notice">{w.fewTold}</p>}
      {shown.length === 0 && <Empty icon="search" title={w.nothing} />}
      {sections.map((section) => (
        <Section
          key={section}
          name={section}
          settings={shown.filter((setting) => setting.section === section)}
          done={reload}
        />
      ))}
      {isNew && <NewSetting sections={sections} onClose={() => setNew(false)} done={reload} />}
    </>
  );
}

function Section({
  name,
  settings,
  done,
}: {
  name: string;
  settings: Setting[];
  done: () => void;
}): JSX.Element | null {
  if (settings.length === 0) return null;
  return (
    <section class="configuration-section" aria-label={name}>
      <h2>{name}</h2>
      {name === 'admins' && (
        <p>
          <a href={link(['users', 'admins'])}>{t().adminsHere}</a>
        </p>
      )}
      {settings.map((setting) => (
        <Row key={setting.key} setting={setting} done={done} />
      ))}
    </section>
  );
}

function NewSetting({
  sections,
  onClose,
  done,
}: {
  sections: string[];
  onClose: () => void;
  done: () => void;
}): JSX.Element {
  const w = t();
  const [section, setSection] = useState('');
  const [key, setKey] = useState('');
  const [value, setValue] = useState('');
  const submit = async () => {
    const setting = { section: section.trim(), key: key.trim() };
    await put(setting, value);
    say(w.saved(nameOf(setting)), () => put(setting, null).then(done));
    done();
    onClose();
  };
  return (
    <Dialog title={w.add} onClose={onClose}>
      <Form onSubmit={submit} submit={words().save} onCancel={onClose}>
        <TextField
          label={w.section}
          value={section}
          onInput={setSection}
          list={sections}
          autocomplete="off"
          focus
          required
        />
        <TextField label={w.key} value={key} onInput={setKey} autocomplete="off" required />
        <TextField label={w.value} value={value} onInput={setValue} autocomplete="off" />
      </Form>
    </Dialog>
  );
}
