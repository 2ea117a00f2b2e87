// SPDX-License-Identifier: Apache-2.0
// What a report does where there are scripts: its tables sort, and its picture answers the pointer.
(function () {
  'use strict';

  // --- tables: a click or the keyboard on a heading sorts by it, again turns it round ---

  function value(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
    const number = parseFloat(text.replace(/,/g, '').replace('\u2212', '-'));
    return { text: text, number: number };
  }

  // Numbers before words, what is empty last in either order.
  function order(a, b, sign) {
    if (!a.text || !b.text) return (a.text ? 0 : 1) - (b.text ? 0 : 1);
    if (isNaN(a.number) || isNaN(b.number)) return sign * a.text.localeCompare(b.text);
    return sign * (a.number - b.number);
  }

  function sort(table, column) {
    const head = table.tHead.rows[0].cells, body = table.tBodies[0];
    const down = head[column].getAttribute('aria-sort') === 'ascending';
    for (const cell of head) cell.removeAttribute('aria-sort');
    head[column].setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const rows = Array.from(body.rows, (row) => ({ row: row, key: value(row, column) }));
    rows.sort((a, b) => order(a.key, b.key, down ? -1 : 1));
    body.append(...rows.map((one) => one.row));
  }

  for (const table of document.querySelectorAll('table.sort')) {
    Array.from(table.tHead.rows[0].cells).forEach((cell, column) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...cell.childNodes);
      button.addEventListener('click', () => sort(table, column));
      cell.append(button);
    });
  }

  // --- what is folded away is printed all the same ---

  addEventListener('beforeprint', () => {
    for (const part of document.querySelectorAll('details')) part.open = true;
  });

  // --- the picture ---

  const island = document.getElementById('facts'), plot = document.getElementById('plot');
  if (!island || !plot || !window.Chart) return;
  const facts = JSON.parse(island.textContent);
  const shapes = { int8: 'rect', fp16: 'triangle', bf16: 'rectRot', w4a16: 'triangle', w8a16: 'triangle', w4a8: 'triangle' };
  const NET = 0, NAME = 1, PRECISION = 2, MADE = 3, X = 4, Y = 5, LOW = 6, HIGH = 7, LEFT = 8, RIGHT = 9;

  // Intervals as lines through the points; of many models only of those on a front.
  const front = new Set(facts.fronts.flat().map((p) => p.join(' ')));
  const many = facts.points.length > 100;
  const bars = {
    id: 'bars',
    beforeDatasetsDraw(chart) {
      const c = chart.ctx, x = chart.scales.x, y = chart.scales.y;
      c.save();
      c.lineWidth = 2;
      c.globalAlpha = 0.4;
      for (const set of chart.data.datasets) {
        c.strokeStyle = set.borderColor;
        for (const p of set.data) {
          const at = p.point;
          if (!at || (many && !front.has(at[X] + ' ' + at[Y]))) continue;
          c.beginPath();
          if (at[LOW] !== null) {
            c.moveTo(x.getPixelForValue(at[X]), y.getPixelForValue(at[LOW]));
            c.lineTo(x.getPixelForValue(at[X]), y.getPixelForValue(at[HIGH]));
          }
          if (at[LEFT] !== null) {
            c.moveTo(x.getPixelForValue(at[LEFT]), y.getPixelForValue(at[Y]));
            c.lineTo(x.getPixelForValue(at[RIGHT]), y.getPixelForValue(at[Y]));
          }
          c.stroke();
        }
      }
      c.restore();
    }
  };

  function datasets(colour) {
    const sets = new Map();
    for (const at of facts.points) {
      const key = facts.nets.length > 12 ? 'all models' : facts.nets[at[NET]];
      if (!sets.has(key)) {
        const own = colour(facts.nets.length > 12 ? 'c0' : 'c' + (at[NET] % 8));
        sets.set(key, { label: key, data: [], backgroundColor: many ? own + '99' : own, borderColor: many ? own + '99' : own,
          pointStyle: [], pointRotation: [], pointRadius: many ? 3 : 6, pointHoverRadius: 8 });
      }
      sets.get(key).data.push({ x: at[X], y: at[Y], point: at });
      sets.get(key).pointStyle.push(shapes[at[PRECISION]] || 'circle');
      sets.get(key).pointRotation.push(at[PRECISION][0] === 'w' ? 180 : 0);
    }
    const fronts = facts.fronts.map((points) => ({ label: 'Pareto front', type: 'line', stepped: 'before',
      data: points.map((p) => ({ x: p[0], y: p[1] })), borderColor: colour('soft'), borderWidth: 1.5,
      borderDash: [5, 4], pointStyle: 'line', pointRadius: 0, pointHitRadius: 0, fill: false }));
    return [...sets.values(), ...fronts];
  }

  function said(item) {
    const at = item.raw.point;
    if (!at) return '';
    let text = at[NAME] + ' (' + at[PRECISION] + ', ' + at[MADE] + '): ' + at[Y].toFixed(2) + facts.unit;
    if (at[LOW] !== null) text += ' [' + at[LOW].toFixed(2) + ', ' + at[HIGH].toFixed(2) + ']';
    return text + ', ' + Number(at[X].toPrecision(3)) + ' ms';
  }

  // The ends of an axis: all points and intervals with a margin.
  function ends(columns, to, back) {
    let low = Infinity, high = -Infinity;
    for (const at of facts.points)
      for (const c of columns)
        if (at[c] !== null) {
          low = Math.min(low, to(at[c]));
          high = Math.max(high, to(at[c]));
        }
    const margin = Math.max(0.06 * (high - low), 0.02);
    return { min: back(low - margin), max: back(high + margin) };
  }

  let chart = null;
  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue('--' + name).trim();
    const axis = (title) => ({ title: { display: true, text: title, color: colour('soft') },
      grid: { color: colour('line') }, ticks: { color: colour('soft') } });
    if (chart) chart.destroy();
    const x = Object.assign(axis(facts.x), ends([X, LEFT, RIGHT], Math.log10, (v) => Math.pow(10, v)));
    const y = Object.assign(axis(facts.y), ends([Y, LOW, HIGH], (v) => v, (v) => v));
    x.type = 'logarithmic';
    // Over more than a decade and a half only 1, 2 and 5 are named: the others' names would touch.
    const wide = Math.log10(x.max / x.min) > 1.5;
    const named = (number) => !wide || /^[125]/.test(number.toExponential());
    x.ticks.maxRotation = 0;
    x.ticks.callback = (number, i, all) =>
      i && i < all.length - 1 && named(number) ? String(Number(number.toPrecision(3))) : '';
    y.ticks.includeBounds = false;
    chart = new Chart(plot.querySelector('canvas'), {
      type: 'scatter',
      data: { datasets: datasets(colour) },
      plugins: [bars],
      options: {
        animation: false, responsive: true, maintainAspectRatio: false,
        scales: { x: x, y: y },
        plugins: {
          legend: { labels: { color: colour('fg'), usePointStyle: true } },
          tooltip: { callbacks: { label: said } }
        }
      }
    });
  }

  plot.hidden = false;
  for (const still of document.querySelectorAll('.still')) still.style.display = 'none';
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
