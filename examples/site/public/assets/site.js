// The button that goes from light to dark and back. Without it, pages follow the system.
const root = document.documentElement;
const kept = localStorage.getItem("theme");
if (kept) root.dataset.theme = kept;

addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("[data-switch]")) {
    button.addEventListener("click", () => {
      const dark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
    });
  }
});
