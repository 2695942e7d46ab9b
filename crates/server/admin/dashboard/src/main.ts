// Begins: finds out who is there, and shows the view that the address names.
import { discover, logIn, resume, whenLoggedOut } from "./api";
import { askWho } from "./login";
import { shell } from "./shell";

async function begin() {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  // The code does not stay in the history of the browser.
  if (code) history.replaceState(null, "", location.pathname);
  let fault: string | null = null;
  try {
    await discover();
    if (code) await logIn({ code });
    if (code || (await resume())) return shell(begin);
  } catch (error) {
    fault = error instanceof Error ? error.message : String(error);
  }
  askWho(begin, fault);
}

// A link of `apus admin login` that is opened in a tab that shows the dashboard already only changes the part behind `#`.
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) void begin();
});
whenLoggedOut(() => void begin());
void begin();
