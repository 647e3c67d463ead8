// What the pages also do without: boxes that scroll can be reached by keyboard, landmarks and cells are named for screen
// readers, wide tables become cards on phones, long identifiers break at their signs, screenshots open in their own size,
// recordings have a button, and long tables can be filtered.
"use strict";

const SCROLLING = ".md-typeset__scrollwrap, .md-typeset pre > code, table.cards td, p:has(> img[src*='/diagrams/'])";

document$.subscribe(() => {
  // what scrolls sideways takes the focus, so that the arrow keys move it; the theme adds boxes and buttons late
  const finish = () => {
    for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "none");
    for (const box of document.querySelectorAll(SCROLLING)) {
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
  // a recording shows its last screen, and plays once for who presses its button
  for (const film of document.querySelectorAll(".md-typeset p:has(> img[src*='/terminal/']):not(.film)")) {
    film.classList.add("film");
    const screens = [...film.querySelectorAll("img")].map((screen) => [screen, screen.src.split("#")[0]]);
    const button = document.createElement("button");
    let runs = 0;
    let playing;
    const show = (moves) => {
      playing = moves;
      // a picture with a new address begins again, or shows its last screen; with the old one, browsers reuse it as it is
      runs += 1;
      for (const [screen, source] of screens) screen.src = `${source}?${runs}${moves ? "" : "#still"}`;
      button.textContent = moves ? "Show the last screen" : "Play the recording";
    };
    button.type = "button";
    button.addEventListener("click", () => show(!playing));
    show(false);
    film.append(button);
  }
  // a long identifier in the text breaks after its signs, not within a word
  for (const code of document.querySelectorAll(".md-typeset :is(p, li) > code")) {
    if (code.childElementCount || code.textContent.length < 20) continue;
    const parts = code.textContent.split(/(?<=[/_.:?&=,])(?=\w)/);
    code.replaceChildren(...parts.flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part])));
  }
  // a table of contents with more entries than a screen has lines shows one chapter's parts at a time
  for (const list of document.querySelectorAll(".md-nav--secondary")) {
    list.classList.toggle("long", list.querySelectorAll(".md-nav__link").length > 30);
  }
  // a table of few columns that does not fit into a phone becomes cards, each cell with the name of its column
  const phone = matchMedia("(max-width: 44.984375em)");
  const fit = () => {
    for (const table of document.querySelectorAll(".md-typeset table:not([class]), .md-typeset table.cards")) {
      table.removeAttribute("class");
      const names = [...table.rows[0].cells].map((cell) => cell.textContent);
      const box = table.closest(".md-typeset__scrollwrap") ?? table.parentElement;
      const wide = phone.matches && names.length > 1 && names.length < 8 && box.scrollWidth > box.clientWidth;
      const roles = wide ? ["table", "row", "cell", "columnheader"] : [];
      for (const [part, role] of [[table, 0], ...[...table.rows].map((row) => [row, 1])]) {
        if (wide) part.setAttribute("role", roles[role]);
        else part.removeAttribute("role");
      }
      for (const row of table.rows) {
        [...row.cells].forEach((cell, at) => {
          if (wide) cell.setAttribute("role", roles[cell.tagName === "TH" ? 3 : 2]);
          else cell.removeAttribute("role");
          if (cell.tagName === "TD" && at && names[at] && names.length > 2) cell.dataset.name = names[at];
          if (cell.textContent.trim() === "-") cell.dataset.none = "";
        });
      }
      for (const part of table.querySelectorAll("thead, tbody")) {
        if (wide) part.setAttribute("role", "rowgroup");
        else part.removeAttribute("role");
      }
      if (wide) table.className = "cards";
    }
  };
  fit();
  phone.addEventListener("change", () => { fit(); finish(); });
  finish();
  addEventListener("resize", finish);
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
