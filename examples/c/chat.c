/* A chat over WebSocket, with rooms: `chat [ADDRESS]`. */
#include <apus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"<!doctype html><meta charset=utf-8><title>Chat</title><form><input autofocus></form><pre></pre>\n"
	"<script>\n"
	"const name = prompt('Your name?') || 'Anonymous'\n"
	"const socket = new WebSocket(`ws${location.protocol.slice(4)}//${location.host}/rooms/swifts?name=${encodeURIComponent(name)}`)\n"
	"socket.onmessage = event => document.querySelector('pre').append(event.data + '\\n')\n"
	"document.forms[0].onsubmit = event => {\n"
	"  event.preventDefault()\n"
	"  socket.send(document.forms[0][0].value)\n"
	"  event.target.reset()\n"
	"}\n"
	"</script>\n";

enum { LONGEST_NAME = 40, LONGEST_MESSAGE = 4000 };

struct member {
	char room[LONGEST_NAME + 1], name[LONGEST_NAME + 1];
};

static bool copy(char *to, apus_str text)
{
	if (!text.len || text.len > LONGEST_NAME || memchr(text.data, 0, text.len))
		return false;
	memcpy(to, text.data, text.len);
	to[text.len] = 0;
	return true;
}

static void say(apus_rooms *rooms, const struct member *member, apus_str text, const apus_websocket *except)
{
	char line[LONGEST_NAME + LONGEST_MESSAGE + 8];
	int length = snprintf(line, sizeof line, "%s%.*s", member->name, (int)text.len, text.data);
	apus_rooms_publish(rooms, member->room, APUS_MESSAGE_TEXT, line, (size_t)length, except);
}

/* Before the handshake: who has no name, or a long one, is not let in. */
static int check(apus_request *request, apus_response *response, void *user)
{
	char name[LONGEST_NAME + 1];
	(void)response, (void)user;
	return copy(name, apus_request_query_value(request, "name")) && copy(name, apus_request_param(request, "room")) ? 0 : 400;
}

static void enter(apus_websocket *socket, apus_request *request, void *user)
{
	struct member *member = calloc(1, sizeof *member);
	if (!member || !copy(member->room, apus_request_param(request, "room")) ||
	    !copy(member->name, apus_request_query_value(request, "name"))) {
		free(member);
		apus_websocket_close(socket, 1011, "no room");
		return;
	}
	apus_websocket_set_data(socket, member, free);
	apus_rooms_join(user, member->room, socket);
	say(user, member, (apus_str){ " is here", 8 }, NULL);
}

static void message(apus_websocket *socket, apus_message_kind kind, const char *data, size_t len, void *user)
{
	struct member *member = apus_websocket_data(socket);
	char text[LONGEST_MESSAGE + 2];
	if (!member || kind != APUS_MESSAGE_TEXT)
		return;
	memcpy(text, ": ", 2);
	memcpy(text + 2, data, len);
	say(user, member, (apus_str){ text, 2 + len }, NULL);
}

static void leave(apus_websocket *socket, int code, apus_str reason, void *user)
{
	struct member *member = apus_websocket_data(socket);
	(void)code, (void)reason;
	if (member)
		say(user, member, (apus_str){ " is gone", 8 }, socket);
}

static int home(apus_request *request, apus_response *response, void *user)
{
	(void)request, (void)user;
	apus_response_html(response, page, APUS_NTS);
	return 0;
}

int main(int argc, char **argv)
{
	apus_rooms *rooms = apus_rooms_new();
	apus_websocket_events events = {
		.size = sizeof events,
		.request = check,
		.open = enter,
		.message = message,
		.close = leave,
		.max_message = LONGEST_MESSAGE,
	};
	apus_app *app = apus_app_new();
	apus_app_get(app, "/", home, NULL);
	apus_app_websocket(app, "/rooms/{room}", &events, rooms);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	apus_rooms_free(rooms);
	return status != APUS_OK;
}
