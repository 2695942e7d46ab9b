// What the browser remembers of the reader's choices: language and colours. Nothing secret.

export function load(name: string): string | null {
  try {
    return localStorage.getItem(`apus.${name}`);
  } catch {
    return null;
  }
}

export function store(name: string, value: string) {
  try {
    localStorage.setItem(`apus.${name}`, value);
  } catch {
    // Without storage, the choice holds until the page is left.
  }
}
