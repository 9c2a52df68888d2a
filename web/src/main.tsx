import { render } from 'preact';
import './style/base.css';
import './style/parts.css';
import './style/shell.css';
import { isLost, look, session } from './api';
import { lost } from './api/connection';
import { Shell, wearTheme } from './shell';

wearTheme();

async function begin(): Promise<void> {
  const app = document.getElementById('app');
  if (!app) return;
  try {
    await look();
  } catch {
    // Who is asking is found out when the server is back.
    session.value = { name: null, roles: [] };
    lost();
    const end = isLost.subscribe((is) => {
      if (is) return;
      queueMicrotask(() => end());
      void look();
    });
  }
  // Nobody may do nothing on most servers: the login comes first, and can be left out.
  if (
    session.value?.name === null &&
    !session.value.roles.includes('_admin') &&
    !isLost.value &&
    location.hash.length < 3
  )
    location.hash = '#/login';
  render(<Shell />, app);
}

void begin();
