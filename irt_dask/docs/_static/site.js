// What is wider than the page scrolls on its own: the keyboard can do so only where it can go.
(function () {
  "use strict";
  const WIDE = ".bd-article table, .bd-article pre, .bd-article .math-display";

  function reach() {
    for (const part of document.querySelectorAll(WIDE)) {
      if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  }

  function start() {
    for (const fold of document.querySelectorAll(".bd-sidebar-primary summary")) {
      const link = fold.closest("li") && fold.closest("li").querySelector("a");
      fold.setAttribute("aria-label", "Pages of " + (link ? link.textContent.trim() : "this part"));
    }
    reach();
    window.addEventListener("resize", reach);
    window.addEventListener("load", reach);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
