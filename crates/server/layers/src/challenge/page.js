(() => {
  const { ticket, level, bits, resend, cookies, failed, ready } = document.currentScript.dataset;
  const status = document.getElementById("status"), bar = document.getElementById("bar");
  const stop = text => { status.textContent = text; bar.hidden = true; };
  const done = answer => {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = "apus_challenge=" + ticket + "." + answer + "; Path=/; Max-Age=120; SameSite=Lax" + secure;
    if (!document.cookie.includes(ticket)) return stop(cookies);
    if (!resend) return location.reload();
    // Only a reload sends the body again, after the browser has asked.
    stop(ready);
    const button = document.getElementById("resend");
    button.hidden = false;
    button.onclick = () => location.reload();
    button.focus();
  };
  // FNV-1a: it proves that a script runs.
  const hash = () => {
    let hash = 0x811c9dc5;
    for (let at = 0; at < ticket.length; at++) hash = Math.imul(hash ^ ticket.charCodeAt(at), 0x01000193);
    return (hash >>> 0).toString(16);
  };
  // Runs in a worker. Only pages over TLS and of this machine have WebCrypto, so that others compute SHA-256 themselves.
  const work = () => {
    const text = new TextEncoder();
    const zeros = bytes => {
      let found = 0;
      for (const byte of bytes) {
        if (byte) return found + Math.clz32(byte) - 24;
        found += 8;
      }
      return found;
    };
    const primes = [];
    for (let number = 2; primes.length < 64; number++) if (primes.every(prime => number % prime)) primes.push(number);
    const root = (number, power) => (number ** (1 / power) % 1) * 2 ** 32 | 0;
    const start = primes.slice(0, 8).map(prime => root(prime, 2)), constants = primes.map(prime => root(prime, 3));
    const sha256 = message => {
      const length = message.length, padded = new Uint8Array((length + 72 >> 6) << 6), view = new DataView(padded.buffer);
      padded.set(message);
      padded[length] = 128;
      view.setUint32(padded.length - 4, length * 8);
      const state = start.slice(), words = new Int32Array(64);
      const turn = (word, by) => word >>> by | word << 32 - by;
      for (let block = 0; block < padded.length; block += 64) {
        for (let at = 0; at < 16; at++) words[at] = view.getInt32(block + at * 4);
        for (let at = 16; at < 64; at++) {
          const one = words[at - 15], two = words[at - 2];
          words[at] = words[at - 16] + words[at - 7] + (turn(one, 7) ^ turn(one, 18) ^ one >>> 3) + (turn(two, 17) ^ turn(two, 19) ^ two >>> 10);
        }
        let [a, b, c, d, e, f, g, h] = state;
        for (let at = 0; at < 64; at++) {
          const one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (e & f ^ ~e & g) + constants[at] + words[at] | 0;
          const two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + (a & b ^ a & c ^ b & c) | 0;
          h = g; g = f; f = e; e = d + one | 0; d = c; c = b; b = a; a = one + two | 0;
        }
        [a, b, c, d, e, f, g, h].forEach((word, at) => { state[at] = state[at] + word | 0; });
      }
      const digest = new DataView(new ArrayBuffer(32));
      state.forEach((word, at) => digest.setInt32(at * 4, word));
      return new Uint8Array(digest.buffer);
    };
    const digest = globalThis.crypto && crypto.subtle
      ? async message => new Uint8Array(await crypto.subtle.digest("SHA-256", message))
      : sha256;
    onmessage = async ({ data: { ticket, bits } }) => {
      for (let first = 0; ; first += 64) {
        const tries = Array.from({ length: 64 }, (_, at) => digest(text.encode(ticket + ":" + (first + at))));
        const found = (await Promise.all(tries)).findIndex(bytes => zeros(bytes) >= bits);
        if (found >= 0) return postMessage(first + found);
      }
    };
  };
  if (level === "2") return done(hash());
  try {
    const worker = new Worker(URL.createObjectURL(new Blob(["(" + work + ")()"], { type: "text/javascript" })));
    worker.onmessage = event => done(event.data);
    worker.onerror = () => stop(failed);
    worker.postMessage({ ticket, bits: Number(bits) });
  } catch {
    stop(failed);
  }
})();
