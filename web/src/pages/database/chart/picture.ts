const SCALE = 2;
const MARGIN = 16;

/** A drawing of paths and texts as PNG, in the colours that it has on the page. */
export async function picture(svg: SVGSVGElement): Promise<Blob> {
  const { width, height } = svg.getBoundingClientRect();
  const canvas = document.createElement('canvas');
  canvas.width = (width + 2 * MARGIN) * SCALE;
  canvas.height = (height + 2 * MARGIN) * SCALE;
  const context = canvas.getContext('2d');
  if (!context) throw new Error('no canvas');
  context.scale(SCALE, SCALE);
  context.fillStyle = getComputedStyle(document.documentElement).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.translate(MARGIN, MARGIN);
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
  for (const element of svg.querySelectorAll<SVGElement>('path, text')) {
    const { fill, stroke, strokeWidth, opacity, fontSize, fontFamily, textAnchor } =
      getComputedStyle(element);
    context.globalAlpha = Number(opacity);
    context.fillStyle = fill;
    context.strokeStyle = stroke;
    context.lineWidth = Number.parseFloat(strokeWidth);
    context.lineCap = 'round';
    context.lineJoin = 'round';
    if (element.localName === 'text') {
      context.font = `${fontSize} ${fontFamily}`;
      context.textAlign =
        textAnchor === 'middle' ? 'center' : textAnchor === 'end' ? 'end' : 'start';
      const at = (name: string) => Number(element.getAttribute(name));
      context.fillText(element.textContent ?? '', at('x'), at('y'));
    } else {
      const path = new Path2D(element.getAttribute('d') ?? '');
      if (fill !== 'none') context.fill(path);
      if (stroke !== 'none') context.stroke(path);
    }
  }
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('no picture'))));
  });
}
