// What the pages also do without: boxes that scroll can be reached by keyboard, landmarks and cells are named for screen
// readers, screenshots open in their own size, recordings stand still for who wants that, and long tables can be filtered.
"use strict";

document$.subscribe(() => {
  // what scrolls sideways takes the focus, so that the arrow keys move it; the theme adds boxes and buttons late
  const finish = () => {
    for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "none");
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    }
  };
  // a header cell without text is an ordinary cell
  for (const cell of document.querySelectorAll(".md-typeset th:empty")) {
    cell.replaceWith(document.createElement("td"));
  }
  // the lists within the table of contents are not landmarks, because two classes may have members of one name
  for (const list of document.querySelectorAll(".md-nav--secondary nav")) {
    list.removeAttribute("aria-label");
    list.setAttribute("role", "none");
  }
  // a screenshot opens in its own size
  for (const picture of document.querySelectorAll(".md-typeset img[src$='.png']")) {
    if (picture.closest("a")) continue;
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
  // a picture is not told that the reader wants less motion: a recording then shows its last screen
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    for (const film of document.querySelectorAll(".md-typeset img[src*='/terminal/']:not([src$='#still'])")) {
      film.src += "#still";
    }
  }
  finish();
  new MutationObserver(finish).observe(document.querySelector("article"), { childList: true, subtree: true });
  for (const place of document.querySelectorAll("[data-filter]")) {
    if (place.childElementCount) continue;
    const field = document.createElement("input");
    const count = document.createElement("output");
    field.type = "search";
    field.placeholder = field.ariaLabel = place.dataset.filter;
    place.append(field, count);
    // the table after the field, with or without the theme's scrolling box around it
    let next = place.nextElementSibling;
    const table = next.matches("table") ? next : next.querySelector("table");
    const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.value = words.length ? `${shown} of ${rows.length}` : "";
    });
  }
});
