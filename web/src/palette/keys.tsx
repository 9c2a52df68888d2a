import { signal } from '@preact/signals';
import type { ComponentType, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { complain } from '../ui';

/** Whether the palette is open: by Ctrl+K, or by its button. */
export const isPaletteOpen = signal(false);

const isMac = /Mac/.test(navigator.platform);

/** The name of the keys that open the palette. */
export const PALETTE_KEYS = isMac ? '⌘K' : 'Ctrl+K';

/** Waits for Ctrl+K. The palette itself is loaded when it is first opened. */
export function Palette(): JSX.Element | null {
  const [Loaded, setLoaded] = useState<ComponentType<{ close: () => void }>>();
  const isOpen = isPaletteOpen.value;
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
  useEffect(() => {
    if (isOpen && !Loaded)
      import('./palette').then((module) => setLoaded(() => module.default), complain);
  }, [isOpen]);
  return isOpen && Loaded ? <Loaded close={() => (isPaletteOpen.value = false)} /> : null;
}
