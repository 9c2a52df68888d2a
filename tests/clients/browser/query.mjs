// The editor of a query.

export const editorOf = (page) => page.getByRole('textbox', { name: 'Query', exact: true });
export const textOf = async (page) => (await editorOf(page).innerText()).trim();

/** Writes a text, of which the last characters are typed. */
export async function write(page, text, typed = '') {
  await editorOf(page).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text || ' ');
  if (typed) await page.keyboard.type(typed);
}
