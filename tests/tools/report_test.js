// What a reader of the page would trip over, as sentences. Opens every fold.
() => {
  const faults = [];
  const fault = (element, what) => {
    const near = (element.closest("section") || {}).id || "";
    faults.push(`${near} <${element.tagName} class="${element.getAttribute("class") || ""}"> "${element.textContent.slice(0, 40)}": ${what}`);
  };
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) faults.push(`the page is ${root.scrollWidth} px wide, the window ${root.clientWidth}`);

  // Text: every line of every piece, where it stands.
  const texts = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const element = node.parentElement;
    if (!node.data.trim() || ["TITLE", "STYLE"].includes(element.tagName.toUpperCase())) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) if (box.width > 0.5) texts.push({element, box});
  }
  const colour = text => text.match(/[\d.]+/g).map(Number);
  const luminance = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const background = element => {
    for (let at = element; at; at = at.parentElement) {
      const paint = colour(getComputedStyle(at).backgroundColor);
      if (paint.length === 3 || paint[3] === 1) return paint;
    }
    return [255, 255, 255];
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if ((luminance(background(document.body)) < 0.2) !== dark) faults.push("the page is not as dark as it should be");
  for (const {element, box} of texts) {
    const style = getComputedStyle(element);
    const scale = element.getScreenCTM ? element.getScreenCTM().a : 1;
    if (parseFloat(style.fontSize) * scale < 11) fault(element, `text of ${parseFloat(style.fontSize) * scale} px`);
    if (contrast(colour(element.closest("svg") ? style.fill : style.color), background(element)) < 4.5) fault(element, "contrast below 4.5");
    if (box.left < -0.5 || box.right > root.clientWidth + 0.5) fault(element, `text from ${box.left} to ${box.right}`);
    const holder = element.closest("td, th, li, dd, figure, .run, .group");
    if (holder) {
      const around = holder.getBoundingClientRect();
      if (box.left < around.left - 1 || box.right > around.right + 1 || box.top < around.top - 4 || box.bottom > around.bottom + 4)
        fault(element, "text sticks out of its place");
    }
  }
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg")) continue;
    if (getComputedStyle(element).overflow !== "visible" && element.scrollWidth > element.clientWidth + 1) fault(element, "is clipped");
  }

  // Marks: seen, inside of their plots, and no text over them.
  const marks = [...document.querySelectorAll("svg rect, svg circle")].map(element => ({element, box: element.getBoundingClientRect()}));
  for (const {element, box} of marks) {
    if (contrast(colour(getComputedStyle(element).fill), background(element)) < 3) fault(element, "a mark with contrast below 3");
    const plot = element.closest("svg.plot, svg.track, svg.key").getBoundingClientRect();
    if (element.tagName === "rect" ? box.left < plot.left - 0.5 || box.right > plot.right + 0.5
                                   : (box.left + box.right) / 2 < plot.left - 0.5 || (box.left + box.right) / 2 > plot.right + 0.5)
      fault(element, "a mark outside of its plot");
  }
  const boxes = [...texts.map(t => ({...t, text: true})), ...marks].sort((a, b) => a.box.top - b.box.top);
  for (let i = 0; i < boxes.length; ++i)
    for (let j = i + 1; j < boxes.length && boxes[j].box.top < boxes[i].box.bottom - 2; ++j) {
      const a = boxes[i], b = boxes[j];
      if (!a.text && !b.text) continue;
      if (Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left) > 1 &&
          Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top) > 3)
        fault(b.element, `overlaps "${a.element.textContent.slice(0, 40)}"`);
    }

  // Shares: as long as they say, of a scale from 0 to 100.
  for (const row of document.querySelectorAll("#roof tbody tr:has(.track)")) {
    const bar = row.querySelector(".track rect"), track = row.querySelector(".track").getBoundingClientRect();
    const said = parseFloat(row.querySelectorAll("td:not(.series)")[1].textContent);
    const shown = 100 * bar.getBoundingClientRect().width / track.width;
    if (Math.abs(Math.min(said, 100) - shown) > 0.6) fault(row, `a bar of ${shown} % says ${said} %`);
  }
  for (const head of document.querySelectorAll("#roof th.axis, #kernels th.axis"))
    if (head.textContent !== "050100 %") fault(head, "another scale than 0 to 100");
  for (const track of document.querySelectorAll("#kernels .track")) {
    const bars = [...track.querySelectorAll("rect")].map(bar => bar.getBoundingClientRect().width);
    if (Math.abs(bars.reduce((a, b) => a + b, 0) / track.getBoundingClientRect().width - 1) > 0.01) fault(track, "parts that are not the whole");
  }

  // Who cannot see: tables and plots have words.
  if (root.lang !== "en" || !document.title || document.querySelectorAll("h1").length !== 1) faults.push("no language, title or heading");
  for (const table of document.querySelectorAll("table"))
    for (const row of table.rows)
      if (![...row.cells].some(cell => cell.tagName === "TH" && cell.scope) && !row.previousElementSibling) fault(table, "a table without headers");
  for (const plot of document.querySelectorAll("svg.plot"))
    if (plot.getAttribute("role") !== "img" || !plot.getAttribute("aria-label")) fault(plot, "a plot without a name");
  let level = 1;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const now = Number(heading.tagName[1]);
    if (now > level + 2) fault(heading, "a heading without the one above it");
    level = now;
  }
  return [...new Set(faults)];
}
