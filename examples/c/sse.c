/* Server-Sent Events: each client gets a tick every half a second. `sse [ADDRESS]`. */
#include <apus.h>
#include <stdio.h>
#include <stdlib.h>

static const char page[] =
	"<!doctype html><title>Ticks</title><p>Tick <output></output>\n"
	"<script>\n"
	"new EventSource('/events').addEventListener('tick', event => {\n"
	"  document.querySelector('output').textContent = event.data\n"
	"})\n"
	"</script>\n";

struct client {
	apus_sse *events;
	apus_timer *timer;
	unsigned ticks;
};

/* It fails when the client is gone or slow; `leave` cleans up. */
static void tick(void *user)
{
	struct client *client = user;
	char data[32];
	int length = snprintf(data, sizeof data, "%u", ++client->ticks);
	apus_sse_send(client->events, "tick", NULL, data, (size_t)length);
}

/* The response has ended, for whatever reason. */
static void leave(apus_outcome outcome, void *user)
{
	struct client *client = user;
	(void)outcome;
	fprintf(stderr, "a client left after %u ticks\n", client->ticks);
	apus_timer_free(client->timer);
	apus_sse_close(client->events);
	free(client);
}

static int events(apus_request *request, apus_response *response, void *user)
{
	struct client *client = calloc(1, sizeof *client);
	(void)user;
	if (!client)
		return 503;
	client->events = apus_response_sse(response);
	client->timer = apus_timer_start(0, 500, tick, client);
	apus_request_on_done(request, leave, client);
	return 0;
}

static int home(apus_request *request, apus_response *response, void *user)
{
	(void)request, (void)user;
	apus_response_html(response, page, APUS_NTS);
	return 0;
}

int main(int argc, char **argv)
{
	apus_app *app = apus_app_new();
	apus_app_get(app, "/", home, NULL);
	apus_app_get(app, "/events", events, NULL);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	/* Streams do not end by themselves: a stop does not wait long for them. */
	apus_server_limit(server, APUS_LIMIT_STOP_TIMEOUT, 1000);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
