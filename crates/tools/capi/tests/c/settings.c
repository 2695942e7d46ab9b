/* A server with the settings of its arguments, in any number and order:
 *
 * settings [listen ADDRESS] [tls POLICY CERTIFICATE KEY] [limit LIMIT VALUE] [config TOML]...
 *
 * Lines on its input: `ban ADDRESS`, `unban ADDRESS`, `on SITE` and `off SITE` for maintenance; each is followed by its status. */

#include <apus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                      \
  do {                                                                   \
    if ((call) != APUS_OK) {                                             \
      printf("%s: %s\n", #call, apus_last_error());                      \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

static int show_client(apus_request *request, apus_response *response, void *user) {
  apus_str client = apus_request_client(request);
  (void)user;
  return apus_response_text(response, client.data ? client.data : "", client.len) == APUS_OK ? 0 : 500;
}

/* The certificate of a name that has none. */
static apus_certificate *find(apus_str name, void *user) {
  char **files = user;
  return name.len == 13 && !memcmp(name.data, "found.example", 13) ? apus_certificate_files(files[0], files[1]) : NULL;
}

int main(int argc, char **argv) {
  apus_app *app = apus_app_new();
  CHECK(apus_app_fallback(app, show_client, NULL));
  apus_server *server = apus_server_new(app);
  apus_config *config = NULL;
  for (char **at = argv + 1; at < argv + argc;) {
    if (!strcmp(at[0], "listen")) {
      CHECK(apus_server_listen(server, at[1]));
      at += 2;
    } else if (!strcmp(at[0], "tls")) {
      apus_tls *tls = apus_tls_new();
      CHECK(apus_tls_policy(tls, at[1]));
      CHECK(apus_tls_certificate(tls, "localhost", apus_certificate_files(at[2], at[3])));
      CHECK(apus_tls_on_server_name(tls, find, at + 2));
      CHECK(apus_server_listen_tls(server, "127.0.0.1:0", tls));
      at += 4;
    } else if (!strcmp(at[0], "limit")) {
      CHECK(apus_server_limit(server, atoi(at[1]), strtoull(at[2], NULL, 10)));
      at += 3;
    } else {
      apus_config_free(config);
      config = apus_config_parse(at[1], APUS_NTS, NULL);
      CHECK(apus_server_config(server, config));
      at += 2;
    }
  }
  CHECK(apus_server_start(server));
  for (size_t i = 0; i < apus_server_address_count(server); ++i) {
    printf("%u ", apus_server_port(server, i));
  }
  char *status = apus_server_status(server);
  printf("\n%s\n", status);
  apus_string_free(status);
  fflush(stdout);
  char line[128], verb[16], what[100];
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "%15s %99s", verb, what) != 2) {
      continue;
    }
    apus_status done = !strcmp(verb, "ban")     ? apus_config_ban(config, what, 600)
                       : !strcmp(verb, "unban") ? apus_config_unban(config, what)
                                                : apus_config_maintenance(config, what, !strcmp(verb, "on"));
    printf("%s\n", done == APUS_OK ? "done" : apus_last_error());
    fflush(stdout);
  }
  apus_config_free(config);
  apus_server_free(server);
  return 0;
}
