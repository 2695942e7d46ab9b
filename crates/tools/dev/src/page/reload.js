// Loads the page again when `apus dev` has another version of it.
(() => {
  const script = document.currentScript;
  // One connection for a window; a browser allows few to one server, so hidden windows have none.
  if (!script || window.top !== window || window.apusDevelopment) return;
  window.apusDevelopment = true;
  const shown = new URL(script.src).searchParams.get("v");
  const key = "apus-development-version";
  let events;
  // The response to a form: to load it again is to send the form again, which the user decides.
  const ask = () => {
    const bar = document.createElement("div");
    bar.setAttribute("role", "status");
    Object.assign(bar.style, {
      position: "fixed", inset: "auto 0 0 0", zIndex: "2147483647", padding: ".6rem 1rem",
      background: "#fff6d5", color: "#222", font: "1rem/1.4 system-ui, sans-serif", borderTop: "1px solid #c8b560",
    });
    bar.textContent = "There is another version of the application. This page is the response to a form. ";
    const again = document.createElement("button");
    again.textContent = "Send the form again";
    again.addEventListener("click", () => location.reload());
    bar.append(again);
    document.body.append(bar);
    document.title = `\u21bb ${document.title}`;
  };
  const follow = () => {
    if (document.visibilityState === "hidden") {
      events?.close();
      events = undefined;
    } else if (!events) {
      events = new EventSource(new URL("events", script.src));
      events.addEventListener("version", ({ data }) => {
        if (data === shown) return;
        if ("form" in script.dataset) {
          events.close();
          document.removeEventListener("visibilitychange", follow);
          ask();
          return;
        }
        // A page from a cache that was loaded for this version is not loaded for ever.
        if (sessionStorage.getItem(key) === data) return;
        sessionStorage.setItem(key, data);
        events.close();
        location.reload();
      });
    }
  };
  document.addEventListener("visibilitychange", follow);
  follow();
})();
