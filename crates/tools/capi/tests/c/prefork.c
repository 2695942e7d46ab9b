/* A parent that forks two children, each with a worker on the same address, which end when standard input does. */

#define _GNU_SOURCE
#include <apus.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int who(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  char text[20];
  snprintf(text, sizeof text, "%d", (int)getpid());
  return apus_response_text(response, text, APUS_NTS) ? 500 : 0;
}

static int serve(const char *address, int end) {
  apus_app *app = apus_app_new();
  apus_app_get(app, "/", who, NULL);
  apus_server *server = apus_server_new(app);
  apus_server_listen(server, address);
  apus_worker *worker = apus_worker_new(server);
  if (!worker) {
    fprintf(stderr, "%s\n", apus_last_error());
    return 1;
  }
  printf("ready\n");
  fflush(stdout);
  struct pollfd waits[2] = {{.fd = apus_worker_fd(worker), .events = POLLIN}, {.fd = end, .events = POLLIN}};
  while (poll(waits, 2, apus_worker_timeout(worker)) >= 0 && !waits[1].revents) {
    if (apus_worker_step(worker) != APUS_OK) return 1;
  }
  apus_worker_free(worker);
  return 0;
}

int main(void) {
  /* A port that is free, and kept by a socket that does not listen. */
  int kept = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t len = sizeof at;
  setsockopt(kept, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  setsockopt(kept, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(kept, (struct sockaddr *)&at, len) || getsockname(kept, (struct sockaddr *)&at, &len)) return 1;
  char address[40];
  snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
  printf("%d\n", ntohs(at.sin_port));
  fflush(stdout);
  int ends[2];
  if (pipe(ends)) return 1;
  for (int child = 0; child < 2; ++child) {
    if (!fork()) {
      close(ends[1]);
      _exit(serve(address, ends[0]));
    }
  }
  close(ends[0]);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  close(ends[1]);
  int status, failed = 0;
  while (wait(&status) > 0) failed |= status;
  if (!failed) printf("ended\n");
  return failed ? 1 : 0;
}
