// Loads the page again when `apus dev` has another version of it.
(() => {
  const script = document.currentScript;
  // One connection for a window; a browser allows few to one server, so hidden windows have none.
  if (!script || window.top !== window || window.apusDevelopment) return;
  window.apusDevelopment = true;
  const shown = new URL(script.src).searchParams.get("v");
  const key = "apus-development-version";
  let events;
  const follow = () => {
    if (document.visibilityState === "hidden") {
      events?.close();
      events = undefined;
    } else if (!events) {
      events = new EventSource(new URL("events", script.src));
      events.addEventListener("version", ({ data }) => {
        // A page from a cache that was loaded for this version is not loaded for ever.
        if (data === shown || sessionStorage.getItem(key) === data) return;
        sessionStorage.setItem(key, data);
        events.close();
        location.reload();
      });
    }
  };
  document.addEventListener("visibilitychange", follow);
  follow();
})();
