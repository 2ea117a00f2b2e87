# SPDX-License-Identifier: Apache-2.0
"""Report pages in a browser: no console error, nothing fetched, contrast as WCAG 2.1 AA asks (4.5:1 text, 3:1
large text and what graphics need), every control reached by Tab in visual order with a visible focus, tables
that sort by Enter and Space, all of it readable without scripts."""
import json
import os
import pathlib
import tempfile

import _chromium
import _reports
from _lib import check, finish, pare, report

# Ratios (WCAG 2.1, 1.4.3: (L1 + 0.05) / (L2 + 0.05), relative luminance of sRGB) of all text that is drawn.
CONTRAST = r'''(() => {
  const parse = (text) => {
    const n = (text.match(/[\d.]+/g) || []).map(Number);
    return /^rgb/.test(text) ? [n[0], n[1], n[2], n.length > 3 ? n[3] : 1] : [0, 0, 0, 0];
  };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const x = light(a), y = light(b);
    return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  };
  const page = () => over(parse(getComputedStyle(document.body).backgroundColor), [255, 255, 255, 1]);
  const after = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]);
  };
  // shapes of the same picture that are under the middle of a text, in the order they are drawn
  const drawn = (text) => {
    const at = text.getBoundingClientRect(), x = at.x + at.width / 2, y = at.y + at.height / 2;
    let below = after(text.ownerSVGElement);
    for (const shape of text.ownerSVGElement.querySelectorAll('rect,circle,path,polygon,text')) {
      if (shape === text) break;
      const box = shape.getBoundingClientRect(), style = getComputedStyle(shape), fill = parse(style.fill);
      if (shape.tagName === 'text' || x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
      fill[3] *= Number(style.fillOpacity) * Number(style.opacity);
      below = over(fill, below);
    }
    return below;
  };
  const list = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement, style = getComputedStyle(e), at = e.getBoundingClientRect();
    if (!node.data.trim() || /^(SCRIPT|STYLE|TITLE|title)$/.test(e.tagName) || !at.width || !at.height ||
        style.visibility !== 'visible') continue;
    const svg = e.namespaceURI.endsWith('svg'), below = svg ? drawn(e) : after(e);
    const colour = parse(svg ? style.fill : style.color);
    for (let up = e; up; up = up.parentElement) colour[3] *= Number(getComputedStyle(up).opacity);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    list.push([ratio(over(colour, below), below), large ? 3 : 4.5, node.data.trim().slice(0, 40), e.tagName]);
  }
  const style = getComputedStyle(document.documentElement), probe = document.createElement('i');
  document.body.append(probe);
  const graphics = ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'good', 'bad', 'soft'].flatMap((name) => {
    probe.style.color = style.getPropertyValue('--' + name);
    const colour = parse(getComputedStyle(probe).color);
    probe.style.color = style.getPropertyValue('--card');
    return [[ratio(colour, parse(getComputedStyle(probe).color)), 3, '--' + name, 'card'], [ratio(colour, page()), 3, '--' + name, 'page']];
  });
  probe.remove();
  return { text: list, graphics: graphics };
})()'''

# What can be operated and is drawn, in the order of the document.
CONTROLS = r'''(() => Array.from(document.querySelectorAll('a[href],button,summary,input,select,textarea,[tabindex="0"]'))
  .filter((e) => e.checkVisibility()).map((e, i) => {
    const at = e.getBoundingClientRect();
    e.dataset.control = i;
    return { tag: e.tagName, text: e.textContent.trim().slice(0, 30), left: at.left, top: at.top, bottom: at.bottom };
  }))()'''

FOCUSED = r'''(() => {
  const e = document.activeElement, style = getComputedStyle(e), at = e.getBoundingClientRect();
  return { control: e.dataset.control === undefined ? -1 : Number(e.dataset.control), tag: e.tagName,
    text: e.textContent.trim().slice(0, 30),
    inside: at.bottom > 0 && at.top < innerHeight && at.right > 0 && at.left < innerWidth,
    outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1 };
})()'''


def too_faint(found):
    return sorted({(round(r, 2), need, text, tag) for r, need, text, tag in found if r < need})


def contrast(page, name):
    found = page.run(CONTRAST)
    faint = too_faint(found['text'])
    worst = min(found['text'])
    if check(f'report_page/{name}/text', not faint and len(found['text']) > 20, f'{len(faint)} too faint: {faint[:4]}'):
        print(f'     {len(found["text"])} texts, least {worst[0]:.2f}:1 ({worst[2]})')
    faint = too_faint(found['graphics'])
    check(f'report_page/{name}/graphics', not faint, str(faint[:6]))


def out_of_order(seen):
    """Pairs that do not follow each other: the next one is lower, or in the same row to the right."""
    wrong = []
    for a, b in zip(seen, seen[1:]):
        same_row = abs(a['top'] - b['top']) < 8
        if b['left'] < a['left'] - 1 if same_row else b['top'] < a['top'] and b['bottom'] <= a['bottom']:
            wrong.append((a['tag'], a['text'], b['tag'], b['text']))
    return wrong


def keyboard(page, name):
    expected = page.run(CONTROLS)
    seen = []
    for _ in range(len(expected) + 1):
        page.press('Tab')
        at = page.run(FOCUSED)
        if at['control'] < 0 or (seen and at['control'] == seen[0]['control']):
            break
        seen.append(at)
    check(f'report_page/{name}/reached', [at['control'] for at in seen] == list(range(len(expected))),
          f'{len(seen)} of {len(expected)}: {[at["control"] for at in seen][:40]}')
    wrong = out_of_order([expected[at['control']] for at in seen])
    check(f'report_page/{name}/visual_order', not wrong, str(wrong[:3]))
    blind = [(at['tag'], at['text']) for at in seen if not at['outline'] or not at['inside']]
    check(f'report_page/{name}/focus_visible', not blind, str(blind[:4]))


COLUMN = '''Array.from(document.querySelector('table.sort').tBodies[0].rows, (row) => row.cells[3].dataset.v)'''
SORTED = '''document.querySelector('table.sort').tHead.rows[0].cells[3].getAttribute('aria-sort')'''


def sorting(page):
    """The column of sizes, by Enter, then turned round by Space."""
    page.run('document.querySelector("table.sort").tHead.rows[0].cells[3].querySelector("button").focus()')
    for key, said in (('Enter', 'ascending'), (' ', 'descending')):
        page.press(key)
        values = [float(v) for v in page.run(COLUMN)]
        right = values == sorted(values, reverse=said == 'descending') and page.run(SORTED) == said
        check(f'report_page/sort/{key.strip() or "Space"}', right, f'{page.run(SORTED)}: {values}')
    kept = page.run('document.activeElement.tagName')
    check('report_page/sort/focus_stays', kept == 'BUTTON', kept)


def without_scripts(page, path):
    page.open(path)
    drawn = page.run('document.body.innerText').split('\n')
    page.scripts(False)
    page.open(path)
    plain = page.run('document.body.innerText').split('\n')
    still = page.run('Array.from(document.querySelectorAll(".still"), (e) => e.getBoundingClientRect().height)')
    dead = page.run('Array.from(document.querySelectorAll("button,canvas")).filter((e) => e.checkVisibility()).length')
    page.scripts(True)
    missing = [line for line in drawn if line.strip() and line not in plain]
    check('report_page/no_scripts/text', not missing and len(plain) > 30, str(missing[:3]))
    check('report_page/no_scripts/picture', max(still, default=0) > 100, f'heights {still}')
    check('report_page/no_scripts/nothing_dead', dead == 0, f'{dead} controls that do nothing')


def quiet(page, name):
    check(f'report_page/{name}/console', not page.said, str(page.said[:3]))
    others = [url for url in page.fetched if not url.startswith('file:') and not url.startswith('data:')]
    check(f'report_page/{name}/fetches_nothing', not others and len(page.fetched) <= 1, str(page.fetched[:3]))


def one_page(page, name, path):
    for dark in (False, True):
        page.dark(dark)
        page.open(path)
        page.run('document.querySelectorAll("details").forEach((e) => { e.open = true; })')
        contrast(page, f'{name}/{"dark" if dark else "light"}')
    page.dark(False)
    page.open(path)
    page.run('scrollTo(0, 0)')
    keyboard(page, name)
    quiet(page, name)


def fits_a_phone(page, path):
    page.size(390, 844, mobile=True)
    page.open(path)
    wide = page.run('document.documentElement.scrollWidth')
    check('report_page/phone', wide <= 390, f'the page is {wide} pixels wide')
    page.size(1280, 900)


def browser():
    """A page, or none and why; where a browser was asked for one that does not run is a failure."""
    if not _chromium.find():
        report('SKIP', 'report_page', 'chromium is not installed; PARE_TEST_BROWSER=1 installs it, PARE_CHROMIUM names one')
        finish()
    try:
        return _chromium.Page()
    except (_chromium.Broken, OSError) as broken:
        asked = os.environ.get('PARE_TEST_BROWSER') == '1'
        report('FAIL' if asked else 'SKIP', 'report_page', f'{_chromium.find()} does not run here: {broken}')
        finish()


def prints_whole(page, path):
    """What may not be cut by the end of a sheet, and the picture that needs no script."""
    page.open(path)
    page.call('Emulation.setEmulatedMedia', media='print', features=[])
    cut = page.run('Array.from(document.querySelectorAll(".card,tr,svg")).filter((e) => '
                   'getComputedStyle(e).breakInside !== "avoid").length')
    still = page.run('Array.from(document.querySelectorAll(".still"), (e) => e.getBoundingClientRect().height)')
    page.call('Emulation.setEmulatedMedia', media='', features=[])
    check('report_page/print/whole', cut == 0, f'{cut} cards, rows and pictures may be cut')
    check('report_page/print/picture', max(still, default=0) > 100, f'heights {still}')


def main():
    with browser() as page, tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, facts in (('single', _reports.single()), ('many', _reports.many(60))):
            files = []
            for i, one in enumerate(facts):
                files.append(folder / f'{name}-{i}.json')
                files[-1].write_text(json.dumps(one))
            pare('report', *files, '-o', folder / f'{name}.html')
            one_page(page, name, folder / f'{name}.html')
        page.open(folder / 'many.html')
        sorting(page)
        without_scripts(page, folder / 'single.html')
        fits_a_phone(page, folder / 'single.html')
        prints_whole(page, folder / 'single.html')
    finish()


main()
