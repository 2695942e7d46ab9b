/* Routes with parameters, the query, a group with its own check, a hook and a page for unknown paths: `routes [ADDRESS]`. */
#include <apus.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is(apus_str text, const char *expected)
{
	return text.len == strlen(expected) && !memcmp(text.data, expected, text.len);
}

static int show_user(apus_request *request, apus_response *response, void *user)
{
	uint64_t id;
	char text[64];
	(void)user;
	if (apus_request_param_u64(request, "id", &id) != APUS_OK)
		return 404;
	int length = snprintf(text, sizeof text, "user %" PRIu64 "\n", id);
	apus_response_text(response, text, (size_t)length);
	return 0;
}

/* `{*path}` takes the rest of the path, which comes decoded. */
static int show_file(apus_request *request, apus_response *response, void *user)
{
	apus_str path = apus_request_param(request, "path");
	char text[512];
	(void)user;
	int length = snprintf(text, sizeof text, "file %.*s\n", (int)(path.len < 400 ? path.len : 400), path.data);
	apus_response_text(response, text, (size_t)length);
	return 0;
}

static int search(apus_request *request, apus_response *response, void *user)
{
	apus_str words = apus_request_query_value(request, "q");
	apus_str limit = apus_request_query_value(request, "limit");
	char text[512];
	(void)user;
	if (!words.data || words.len > 200 || limit.len > 9)
		return 400;
	int length = snprintf(text, sizeof text, "%.*s results for %.*s\n",
		limit.data ? (int)limit.len : 2, limit.data ? limit.data : "10", (int)words.len, words.data);
	apus_response_text(response, text, (size_t)length);
	return 0;
}

static int status(apus_request *request, apus_response *response, void *user)
{
	(void)request, (void)user;
	apus_response_text(response, "all is well\n", APUS_NTS);
	return 0;
}

/* Runs before the handlers of its group. A status of 400 or more ends the request there. */
static int require_token(apus_request *request, apus_response *response, void *user)
{
	(void)response;
	return is(apus_request_header(request, "authorization"), user) ? 0 : 401;
}

/* Runs after all handlers, also for errors. */
static void sign(apus_response *response, void *user)
{
	apus_response_set_header(response, "x-served-by", user, APUS_NTS);
}

static int not_found(apus_request *request, apus_response *response, void *user)
{
	apus_str path = apus_request_path(request);
	char text[512];
	(void)user;
	int length = snprintf(text, sizeof text, "There is no %.*s.\n", (int)(path.len < 400 ? path.len : 400), path.data);
	apus_response_set_status(response, 404);
	apus_response_text(response, text, (size_t)length);
	return 0;
}

int main(int argc, char **argv)
{
	apus_app *app = apus_app_new();
	apus_app_get(app, "/users/{id}", show_user, NULL);
	apus_app_get(app, "/files/{*path}", show_file, NULL);
	apus_app_get(app, "/search", search, NULL);
	apus_app_after(app, sign, "routes");
	apus_app_fallback(app, not_found, NULL);

	apus_app *admin = apus_app_group(app, "/admin");
	apus_app_before(admin, require_token, "Bearer swift");
	apus_app_get(admin, "/status", status, NULL);

	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	apus_status result = apus_server_run(server);
	if (result != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return result != APUS_OK;
}
