import { Component, type ComponentChildren, type JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  ask,
  isAdmin,
  isExpired,
  isLost,
  logOut,
  mayMeasure,
  server,
  session,
  useResource,
} from './api';
import { forgetDrafts } from './drafts';
import { findings, watchHealth } from './health';
import { count, type Language, language, speak } from './i18n';
import { Login, Relogin } from './login';
import { type Area, find } from './pages';
import { isPaletteOpen, PALETTE_KEYS, Palette } from './palette/keys';
import { forget, isGuarded, link, place, setGuard } from './router';
import { shell as say } from './texts';
import {
  Badge,
  Button,
  Confirmations,
  complain,
  Empty,
  Icon,
  type IconName,
  Problem,
  Toasts,
  words,
} from './ui';

interface Entry {
  area: Area;
  icon: IconName;
  to: string[];
  may?: () => boolean;
}

const ENTRIES: Entry[] = [
  { area: 'databases', icon: 'database', to: [] },
  { area: 'replication', icon: 'replicate', to: ['replication'] },
  { area: 'users', icon: 'users', to: ['users'] },
  { area: 'configuration', icon: 'settings', to: ['_config'], may: () => isAdmin.value },
  { area: 'tasks', icon: 'tasks', to: ['activetasks'], may: () => mayMeasure.value },
  { area: 'cluster', icon: 'cluster', to: ['cluster'], may: () => isAdmin.value },
  { area: 'performance', icon: 'performance', to: ['performance'], may: () => mayMeasure.value },
];

/** The other tabs of this browser, which share the session. */
const tabs = new BroadcastChannel(`settee ${server.pathname}`);
tabs.onmessage = () => {
  if (session.value?.name === null) return;
  // Unsaved text is kept: its user logs in again, in place.
  if (isGuarded()) isExpired.value = true;
  else showLogin();
};

/** Loads the login, so that nothing of who was logged in stays on the screen or in memory. */
function showLogin(): void {
  setGuard(undefined);
  forget();
  sessionStorage.clear();
  history.replaceState(null, '', '#/login');
  location.reload();
}

async function leave(): Promise<void> {
  if (isGuarded() && !window.confirm(words().unsaved)) return;
  await logOut();
  forgetDrafts();
  tabs.postMessage('out');
  showLogin();
}

export function Shell(): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const now = place.value;
  const found = find(now);
  const t = say();
  useEffect(() => setOpen(false), [now]);
  useEffect(() => {
    document.documentElement.lang = language.value;
  }, [language.value]);
  const needsLogin = session.value?.name === null && !session.value.roles.includes('_admin');
  const [wantsLogin, setWantsLogin] = useState(false);
  // Who is asking is not known before the server could be reached.
  const mayNot =
    !isLost.value && ENTRIES.find((entry) => entry.area === found?.area)?.may?.() === false;
  const isLogin = now.parts[0] === 'login' || wantsLogin;
  if (needsLogin && isLogin)
    return (
      <>
        <Login onDone={() => setWantsLogin(false)} />
        <Toasts />
      </>
    );
  return (
    <div class="shell">
      {/* biome-ignore lint/a11y/useValidAnchor: a skip link, whose address the router would take for a page */}
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById('content')?.focus();
        }}
      >
        {t.skip}
      </a>
      <Side
        area={found?.area}
        isOpen={isOpen}
        close={() => setOpen(false)}
        onLogin={needsLogin ? () => setWantsLogin(true) : undefined}
      />
      {isOpen && <div class="shade" onClick={() => setOpen(false)} />}
      <div class="main">
        <div class="top">
          <Button
            kind="plain"
            icon="menu"
            label={t.open}
            onClick={() => setOpen(!isOpen)}
            aria-expanded={isOpen}
          />
          <span class="brand">Settee</span>
        </div>
        <DevMode />
        {isLost.value && (
          <div class="lost" role="alert">
            <strong>{words().lost}</strong> {words().lostDo}
          </div>
        )}
        <main id="content" tabIndex={-1}>
          <Boundary key={now.parts.join('/')}>
            {found && mayNot ? (
              <Empty icon="users" title={t.noRight}>
                {needsLogin ? <a href="#/login">{t.logIn}</a> : <p>{t.noRightDo}</p>}
              </Empty>
            ) : found ? (
              <found.page place={now} />
            ) : (
              <Empty icon="search" title={t.nowhere}>
                <a class="button" href="#/">
                  {t.toDatabases}
                </a>
              </Empty>
            )}
          </Boundary>
        </main>
        <Toasts />
      </div>
      <Palette />
      <Relogin />
      <Confirmations />
    </div>
  );
}

function Side({
  area,
  isOpen,
  close,
  onLogin,
}: {
  area: Area | undefined;
  isOpen: boolean;
  close: () => void;
  onLogin: (() => void) | undefined;
}): JSX.Element {
  const t = say();
  const welcome = useWelcome();
  useEffect(() => (isAdmin.value ? watchHealth() : undefined), [isAdmin.value]);
  const { name } = session.value ?? { name: null };
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    if (isOpen) nav.current?.querySelector<HTMLElement>('a.nav')?.focus();
  }, [isOpen]);
  const press = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !isOpen) return;
    close();
    document.querySelector<HTMLElement>('.top button')?.focus();
  };
  return (
    <nav
      class={`side${isOpen ? ' open' : ''}`}
      aria-label={t.navigation}
      ref={nav}
      onKeyDown={press}
      // A link to the page that is shown changes no address.
      onClick={(event) => (event.target as Element).closest('a') && close()}
    >
      <a class="brand" href="#/">
        <img src="./icon.svg" alt="" width={24} height={24} />
        Settee
      </a>
      <Button
        icon="search"
        class="go-to"
        aria-keyshortcuts="Control+K"
        onClick={() => {
          close();
          isPaletteOpen.value = true;
        }}
      >
        <span class="grow">{t.goTo}</span>
        <small class="soft">{PALETTE_KEYS}</small>
      </Button>
      {ENTRIES.filter((entry) => entry.may?.() ?? true).map((entry) => (
        <a
          key={entry.area}
          class="nav"
          href={link(entry.to)}
          aria-current={entry.area === area ? 'page' : undefined}
        >
          <Icon name={entry.icon} />
          {t[entry.area]}
          {entry.area === 'performance' && isAdmin.value && findings.value ? (
            <Badge kind="warn">
              <span aria-hidden="true">{count(findings.value)}</span>
              <span class="hidden">{t.findings(count(findings.value))}</span>
            </Badge>
          ) : null}
        </a>
      ))}
      <div class="foot">
        <div class="who">
          <span class="grow cut" title={name ?? ''}>
            {name}
          </span>
          {name !== null && (
            <Button
              kind="plain"
              icon="out"
              label={t.logOut}
              onClick={() => leave().catch(complain)}
            />
          )}
        </div>
        {onLogin && <Button onClick={onLogin}>{t.logIn}</Button>}
        <div class="row-of">
          <select
            class="grow"
            aria-label={t.language}
            value={language.value}
            onChange={(event) => speak(event.currentTarget.value as Language)}
          >
            <option value="en" selected={language.value === 'en'}>
              English
            </option>
            <option value="de" selected={language.value === 'de'}>
              Deutsch
            </option>
          </select>
          <ThemeChoice />
        </div>
        <small class="soft version">{versions(welcome.data)}</small>
      </div>
    </nav>
  );
}

interface Welcome {
  /** Of CouchDB, whose protocol the server speaks. */
  version?: string;
  vendor?: { name?: string; version?: string; dev?: boolean };
}

function useWelcome() {
  return useResource('welcome', (signal) => ask<Welcome>('GET', '/', { signal, background: true }));
}

/** Warns that the server needs no login. */
function DevMode(): JSX.Element | null {
  const t = say();
  if (useWelcome().data?.vendor?.dev !== true) return null;
  return (
    <div class="lost" role="status">
      <strong>{t.dev}</strong> {t.devText}
    </div>
  );
}

/** Whose server it is, and which CouchDB it is to its clients. */
function versions({ version, vendor }: Welcome = {}): string {
  const own = vendor?.version ? `${vendor.name ?? ''} ${vendor.version}`.trim() : '';
  return [own, version && `CouchDB ${version}`].filter(Boolean).join(' · ');
}

const THEME = 'settee-theme';

export function wearTheme(theme = localStorage.getItem(THEME) ?? ''): void {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function ThemeChoice(): JSX.Element {
  const t = say();
  const [theme, setTheme] = useState(() => localStorage.getItem(THEME) ?? '');
  const choose = (to: string) => {
    if (to) localStorage.setItem(THEME, to);
    else localStorage.removeItem(THEME);
    wearTheme(to);
    setTheme(to);
  };
  return (
    <select
      class="grow"
      aria-label={t.theme}
      value={theme}
      onChange={(event) => choose(event.currentTarget.value)}
    >
      {(
        [
          ['', t.system],
          ['light', t.light],
          ['dark', t.dark],
        ] as const
      ).map(([value, name]) => (
        <option key={value} value={value} selected={value === theme}>
          {name}
        </option>
      ))}
    </select>
  );
}

/** An error in one page leaves the others alone. */
class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: undefined as unknown };

  static override getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ComponentChildren {
    const { error } = this.state;
    return error === undefined ? (
      this.props.children
    ) : (
      <Problem error={error} retry={() => this.setState({ error: undefined })} />
    );
  }
}
