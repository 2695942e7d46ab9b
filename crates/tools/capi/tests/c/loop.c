/* A worker inside a loop of poll(2), which ends when standard input does. */

#define _GNU_SOURCE
#include <apus.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static apus_worker *worker;

static int hello(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  return apus_response_text(response, "from the loop", APUS_NTS) ? 500 : 0;
}

static void *complete(void *data) {
  usleep(5000);
  apus_response_text(apus_deferred_response(data), "from a thread", APUS_NTS);
  if (apus_worker_step(worker) != APUS_THREAD) return NULL;
  apus_complete(data, 0);
  return NULL;
}

static int defer(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  pthread_t thread;
  pthread_create(&thread, NULL, complete, apus_defer(request));
  pthread_detach(thread);
  return 0;
}

static void fire(void *data) {
  apus_response_text(apus_deferred_response(data), "from a timer", APUS_NTS);
  apus_complete(data, 0);
}

static apus_timer *timer;

static int start_timer(apus_request *request, apus_response *response, void *user) {
  (void)response, (void)user;
  apus_timer_free(timer);
  timer = apus_timer_start(20, 0, fire, apus_defer(request));
  int timeout = apus_worker_timeout(worker);
  return timer && timeout >= 0 && timeout <= 250 ? 0 : 500;
}

static int again(apus_request *request, apus_response *response, void *user) {
  (void)request, (void)user;
  return apus_response_text(response, apus_status_name(apus_worker_step(worker)), APUS_NTS) ? 500 : 0;
}

int main(void) {
  apus_app *app = apus_app_new();
  apus_app_get(app, "/hello", hello, NULL);
  apus_app_get(app, "/defer", defer, NULL);
  apus_app_get(app, "/timer", start_timer, NULL);
  apus_app_get(app, "/again", again, NULL);
  apus_server *server = apus_server_new(app);
  apus_server_listen(server, "127.0.0.1:0");
  worker = apus_worker_new(server);
  if (!worker) {
    fprintf(stderr, "%s\n", apus_last_error());
    return 1;
  }
  printf("%u\n", apus_worker_port(worker, 0));
  fflush(stdout);
  struct pollfd waits[2] = {{.fd = apus_worker_fd(worker), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
  int count = 2;
  for (;;) {
    if (poll(waits, (nfds_t)count, apus_worker_timeout(worker)) < 0) return 1;
    if (count == 2 && waits[1].revents) {
      count = 1;
      apus_worker_stop(worker);
    }
    apus_status status = apus_worker_step(worker);
    if (status == APUS_END) break;
    if (status != APUS_OK) return 1;
  }
  apus_timer_free(timer);
  apus_worker_free(worker);
  printf("ended\n");
  return 0;
}
