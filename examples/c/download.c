/* Bodies that are made while they are sent, and a file that the kernel sends: `download [ADDRESS [FILE]]`. */
#define _POSIX_C_SOURCE 200809L
#include <apus.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct numbers {
	uint64_t next, last;
};

/* Called whenever the client can take more, so that little waits in memory even if the client is slow. */
static void write_numbers(apus_writer *writer, apus_status status, void *user)
{
	struct numbers *numbers = user;
	while (status == APUS_OK && numbers->next <= numbers->last) {
		char lines[4096];
		size_t length = 0;
		uint64_t next = numbers->next;
		while (next <= numbers->last && length + 24 < sizeof lines)
			length += (size_t)snprintf(lines + length, sizeof lines - length, "%" PRIu64 "\n", next++);
		status = apus_writer_write(writer, lines, length);
		if (status == APUS_OK)
			numbers->next = next;
	}
	if (status == APUS_FULL) /* It is called again. */
		return;
	if (status != APUS_OK)
		fprintf(stderr, "a client left at %" PRIu64 "\n", numbers->next);
	free(numbers);
	apus_writer_finish(writer);
}

static int count(apus_request *request, apus_response *response, void *user)
{
	struct numbers *numbers = calloc(1, sizeof *numbers);
	(void)user;
	if (!numbers)
		return 503;
	numbers->next = 1;
	if (apus_request_param_u64(request, "last", &numbers->last) != APUS_OK) {
		free(numbers);
		return 404;
	}
	apus_response_set_header(response, "content-type", "text/plain", APUS_NTS);
	apus_writer_on_ready(apus_response_stream(response, 0), write_numbers, numbers);
	return 0;
}

static int send_file(apus_request *request, apus_response *response, void *user)
{
	struct stat stat;
	int result = 404, file = open(user, O_RDONLY | O_CLOEXEC);
	(void)request;
	if (file < 0)
		return result;
	if (!fstat(file, &stat) && apus_response_sendfile(response, file, 0, (uint64_t)stat.st_size) == APUS_OK)
		result = 0;
	close(file);
	return result;
}

int main(int argc, char **argv)
{
	apus_app *app = apus_app_new();
	apus_app_get(app, "/numbers/{last}", count, NULL);
	if (argc > 2)
		apus_app_get(app, "/file", send_file, argv[2]);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argc > 1 ? argv[1] : "127.0.0.1:8080");
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
