/* A handler that keeps its request, and a thread that uses it after the response. */

#define _GNU_SOURCE
#include <apus.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static apus_request *kept;

int keep(apus_request *request, apus_response *response, void *user);

int keep(apus_request *request, apus_response *response, void *user) {
  (void)user;
  kept = request;
  return apus_response_text(response, "kept", APUS_NTS) ? 500 : 0;
}

int main(void) {
  apus_app *app = apus_app_new();
  apus_app_get(app, "/keep", keep, NULL);
  apus_server *server = apus_server_new(app);
  apus_server_listen(server, "127.0.0.1:0");
  if (apus_server_start(server)) return 1;
  int client = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(apus_server_port(server, 0)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const char *request = "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n";
  char response[100];
  if (connect(client, (struct sockaddr *)&at, sizeof at) || write(client, request, strlen(request)) < 0) return 1;
  if (read(client, response, sizeof response) <= 0) return 1;
  apus_request_path(kept);
  return 0;
}
