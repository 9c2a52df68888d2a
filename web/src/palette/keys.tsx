import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Search } from './palette';

/** Whether the palette is open: by Ctrl+K, or by its button. */
export const isPaletteOpen = signal(false);

const isMac = /Mac/.test(navigator.platform);

/** The name of the keys that open the palette. */
export const PALETTE_KEYS = isMac ? '⌘K' : 'Ctrl+K';

/** Waits for Ctrl+K. */
export function Palette(): JSX.Element | null {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const isAsked = (isMac ? event.metaKey : event.ctrlKey) && event.key.toLowerCase() === 'k';
      if (!isAsked || event.shiftKey || event.altKey) return;
      event.preventDefault();
      // Another dialog is answered first.
      if (!document.querySelector('dialog[open]')) isPaletteOpen.value = true;
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  return isPaletteOpen.value ? <Search close={() => (isPaletteOpen.value = false)} /> : null;
}
