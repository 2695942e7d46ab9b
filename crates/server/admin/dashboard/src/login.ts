// The log-in with name and password.
import { ApiError, logIn } from "./api";
import { h, replace } from "./dom";
import { span } from "./format";
import { forget } from "./parts";
import { switches } from "./shell";
import { t } from "./text";

export function askWho(then: () => void, fault: string | null) {
  const message = h("p", { class: "bad", role: "alert" }, fault);
  const name = h("input", { id: "name", name: "name", autocomplete: "username", required: true, autocapitalize: "off", spellcheck: "false" });
  const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { class: "primary" }, t("Log in"));
  const submit = async (event: Event) => {
    event.preventDefault();
    button.disabled = true;
    message.textContent = "";
    try {
      await logIn({ name: name.value, password: password.value });
      then();
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      message.textContent = status === 401 ? t("The name or the password is wrong.")
        : status === 429 ? t("Too many attempts; the next one is in {time}.", { time: span((error as ApiError).retryAfter ?? 60) })
        : error instanceof Error ? error.message : String(error);
      password.value = "";
      password.focus();
    } finally {
      button.disabled = false;
    }
  };
  forget();
  document.title = `${t("Log in")} · Apus`;
  replace(document.body, h("main", { class: "login" },
    h("form", { class: "card", submit }, h("h1", {}, "Apus"),
      h("p", { class: "field" }, h("label", { for: "name" }, t("Name")), name),
      h("p", { class: "field" }, h("label", { for: "password" }, t("Password")), password),
      message, button,
      h("p", { class: "minor" }, t("Without an account yet:"), " ", h("code", {}, "apus admin login"), " ", t("on the server prints an address that logs in once."))),
    h("div", { class: "switches" }, switches(() => askWho(then, null)))));
  name.focus();
}
