import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, isAborted, send, url } from '../../api';
import { count, duration, moment, percent } from '../../i18n';
import { Button, Choice, download, Empty, Problem, Progress, TextField } from '../../ui';
import { Bottom } from './bottom';
import { grow, type Profile, shares, svg } from './flame';
import { Graph } from './graph';
import { say } from './texts';

/** Profiles of this visit, the latest first: they can be compared. */
const taken = signal<Profile[]>([]);
let ids = 0;

type Of = 'cpu' | 'waits';

function keep(
  name: string,
  folded: string,
  unit: Profile['unit'],
  told: Profile['told'] = {},
  query: Profile['query'] = {},
): Profile | undefined {
  const root = grow(folded);
  if (!root) return undefined;
  const profile = { id: ++ids, name, folded, root, unit, told, query };
  taken.value = [profile, ...taken.value.slice(0, 9)];
  return profile;
}

export default function Page(): JSX.Element {
  const t = say();
  const [of, setOf] = useState<Of>('cpu');
  const [seconds, setSeconds] = useState('10');
  const [hz, setHz] = useState('99');
  const [began, setBegan] = useState(0);
  const [error, setError] = useState<unknown>();
  const [isEmpty, setEmpty] = useState(false);
  const [shown, setShown] = useState<number | undefined>();
  const [other, setOther] = useState(0);
  const control = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => control.current?.abort(), []);
  const run = async () => {
    control.current = new AbortController();
    setError(undefined);
    setEmpty(false);
    setBegan(Date.now());
    const query = { seconds: Number(seconds), hz: Number(hz), of };
    try {
      const response = await send('GET', '/_settee/profile', {
        query: { ...query, format: 'folded' },
        signal: control.current.signal,
      });
      const header = response.headers.get('x-settee-profile') ?? '';
      const told = Object.fromEntries(
        header.split(' ').map((pair) => [pair.split('=')[0] ?? '', Number(pair.split('=')[1])]),
      );
      const made = keep(
        t.taken(of === 'cpu' ? t.cpuTime : t.waits, moment(Date.now())),
        await response.text(),
        of === 'cpu' ? 'samples' : 'us',
        told,
        query,
      );
      setEmpty(!made);
      if (made) setShown(made.id);
    } catch (thrown) {
      if (thrown instanceof ApiError && thrown.status === 404) setEmpty(true);
      else if (!isAborted(thrown)) setError(thrown);
    }
    setBegan(0);
  };
  const read = async (file: File | undefined) => {
    if (!file) return;
    const made = keep(file.name, await file.text(), 'samples');
    setError(made ? undefined : new Error(t.badFile));
    if (made) setShown(made.id);
  };
  const profile = taken.value.find((each) => each.id === shown) ?? taken.value[0];
  const before = taken.value.find((each) => each.id === other && each !== profile);
  const isRight =
    Number(seconds) >= 1 && Number(seconds) <= 300 && Number(hz) >= 1 && Number(hz) <= 1000;
  return (
    <>
      <form
        class="asks"
        onSubmit={(event) => {
          event.preventDefault();
          if (began === 0 && isRight) void run();
        }}
      >
        <Choice
          label={t.kind}
          value={of}
          of={[
            ['cpu', t.cpuTime],
            ['waits', t.waits],
          ]}
          onChange={setOf}
        />
        <TextField
          label={`${t.seconds} (1–300)`}
          type="number"
          value={seconds}
          onInput={setSeconds}
          required
        />
        {of === 'cpu' && (
          <TextField label={`${t.hz} (1–1000)`} type="number" value={hz} onInput={setHz} required />
        )}
        {began === 0 ? (
          <button type="submit" class="primary" disabled={!isRight}>
            {t.start}
          </button>
        ) : (
          <Button icon="close" onClick={() => control.current?.abort()}>
            {t.stop}
          </Button>
        )}
        <FileButton label={t.openFile} onFile={(file) => void read(file)} />
      </form>
      {began !== 0 && <Running began={began} seconds={Number(seconds)} />}
      <Problem error={error} dismiss={() => setError(undefined)} />
      {isEmpty && (
        <Empty icon="performance" title={t.noSamples}>
          <small>{t.noSamplesText}</small>
        </Empty>
      )}
      {!profile && !isEmpty && began === 0 && <Empty icon="performance" title={t.profileEmpty} />}
      {profile && !isEmpty && (
        <>
          <div class="asks">
            {taken.value.length > 1 && (
              <Choice
                label={t.profiles}
                value={String(profile.id)}
                of={taken.value.map((each) => [String(each.id), each.name] as const)}
                onChange={(id) => setShown(Number(id))}
              />
            )}
            {taken.value.length > 1 && (
              <Choice
                label={t.compare}
                value={String(before?.id ?? '')}
                of={[
                  ['', t.nothingElse],
                  ...taken.value
                    .filter((each) => each !== profile)
                    .map((each) => [String(each.id), each.name] as const),
                ]}
                onChange={(id) => setOther(Number(id))}
              />
            )}
            <Downloads profile={profile} before={before} />
          </div>
          <p class="soft small">{quality(profile)}</p>
          <Graph key={profile.id} profile={profile} before={before} />
          <Bottom profile={profile} before={before} />
        </>
      )}
    </>
  );
}

function quality({ name, told, root, unit }: Profile): string {
  const t = say();
  const all = unit === 'us' ? duration(root.value / 1e6) : t.total(count(told.total ?? root.value));
  return [
    name,
    all,
    told.total && told.unknown !== undefined ? t.unknown(percent(told.unknown / told.total)) : '',
    told.lost ? t.lost(count(told.lost)) : '',
  ]
    .filter(Boolean)
    .join(' · ');
}

function Running({ began, seconds }: { began: number; seconds: number }): JSX.Element {
  const t = say();
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  const passed = Math.min(seconds, (now - began) / 1000);
  return (
    <div role="status">
      <Progress value={passed / seconds} label={t.profile} />
      <small class="soft">
        {duration(Math.floor(passed))} / {duration(seconds)}. {t.running}
      </small>
    </div>
  );
}

function Downloads({
  profile,
  before,
}: {
  profile: Profile;
  before: Profile | undefined;
}): JSX.Element {
  const t = say();
  const name = `settee-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, '-')}`;
  return (
    <div class="bar">
      <Button
        icon="download"
        onClick={() =>
          download(
            `${name}.svg`,
            svg(profile.root, profile.name, before && shares(before.root)),
            'image/svg+xml',
          )
        }
      >
        SVG
      </Button>
      <Button
        icon="download"
        onClick={() => download(`${name}.folded`, profile.folded, 'text/plain')}
      >
        folded
      </Button>
      {profile.query.seconds !== undefined && (
        <a
          class="button"
          href={url('/_settee/profile', { ...profile.query, format: 'pprof' }).href}
          download={`${name}.pb.gz`}
          title={t.pprofHint}
        >
          pprof
        </a>
      )}
    </div>
  );
}

function FileButton({
  label,
  onFile,
}: {
  label: string;
  onFile: (file: File | undefined) => void;
}): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const take = () => {
    onFile(input.current?.files?.[0]);
    if (input.current) input.current.value = '';
  };
  return (
    <>
      <Button icon="upload" onClick={() => input.current?.click()}>
        {label}
      </Button>
      <input ref={input} type="file" hidden aria-label={label} onChange={take} />
    </>
  );
}
