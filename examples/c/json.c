/* An API of notes in JSON, with cJSON (Debian: libcjson-dev): `json [ADDRESS]`. */
#include <apus.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* The notes, `{"id": 1, "text": "..."}`. There is one worker, so they need no lock. */
static cJSON *notes;
static double last_id;

/* Responds with JSON, whose text is freed once it is sent. */
static int respond(apus_response *response, const cJSON *value)
{
	char *text = cJSON_PrintUnformatted(value);
	if (!text)
		return 500;
	apus_response_json(response, text, APUS_NTS);
	cJSON_free(text);
	return 0;
}

/* The place of the note that the path names, or -1. */
static int find(apus_request *request)
{
	int64_t id;
	if (apus_request_param_i64(request, "id", &id) != APUS_OK)
		return -1;
	for (int at = 0; at < cJSON_GetArraySize(notes); at++)
		if (cJSON_GetObjectItem(cJSON_GetArrayItem(notes, at), "id")->valuedouble == (double)id)
			return at;
	return -1;
}

static int list(apus_request *request, apus_response *response, void *user)
{
	(void)request, (void)user;
	return respond(response, notes);
}

static int show(apus_request *request, apus_response *response, void *user)
{
	int at = find(request);
	(void)user;
	return at < 0 ? 404 : respond(response, cJSON_GetArrayItem(notes, at));
}

static int delete(apus_request *request, apus_response *response, void *user)
{
	int at = find(request);
	(void)user;
	if (at < 0)
		return 404;
	cJSON_DeleteItemFromArray(notes, at);
	apus_response_set_status(response, 204);
	return 0;
}

/* Called with the whole body. */
static int create(apus_request *request, apus_response *response, void *user)
{
	apus_str body = apus_request_body(request);
	cJSON *received = cJSON_ParseWithLength(body.data ? body.data : "", body.len);
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(received, "text"));
	(void)user;
	if (!text) {
		cJSON_Delete(received);
		return 400;
	}
	cJSON *note = cJSON_CreateObject();
	cJSON_AddNumberToObject(note, "id", ++last_id);
	cJSON_AddStringToObject(note, "text", text);
	cJSON_AddItemToArray(notes, note);
	cJSON_Delete(received);

	char location[64];
	snprintf(location, sizeof location, "/notes/%.0f", last_id);
	apus_response_set_status(response, 201);
	apus_response_set_header(response, "location", location, APUS_NTS);
	return respond(response, note);
}

/* A longer body is a 413, without a call of `create`. */
static int read_note(apus_request *request, apus_response *response, void *user)
{
	(void)response;
	return apus_request_read_body(request, 16 * 1024, create, user) == APUS_OK ? 0 : 500;
}

int main(int argc, char **argv)
{
	notes = cJSON_CreateArray();
	apus_app *app = apus_app_new();
	apus_app_get(app, "/notes", list, NULL);
	apus_app_post(app, "/notes", read_note, NULL);
	apus_app_get(app, "/notes/{id}", show, NULL);
	apus_app_delete(app, "/notes/{id}", delete, NULL);

	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	apus_server_workers(server, 1);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	cJSON_Delete(notes);
	return status != APUS_OK;
}
