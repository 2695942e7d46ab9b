/* Uploads that are written to disk as they come: `upload ADDRESS FOLDER`, and
 *     curl --upload-file photo.jpg http://ADDRESS/files/photo.jpg
 */
#define _POSIX_C_SOURCE 200809L
#include <apus.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 30 };

struct upload {
	int file;
	uint64_t length;
	char part[PATH_MAX]; /* until it is complete */
	char path[PATH_MAX];
};

static int end(apus_deferred *deferred, struct upload *upload, int result)
{
	close(upload->file);
	if (result)
		unlink(upload->part);
	free(upload);
	apus_complete(deferred, result);
	return 0;
}

/* Called with each part of the body. A file system can be slow: a server for many clients writes on other threads. */
static int write_part(apus_deferred *deferred, apus_status status, const char *data, size_t len, void *user)
{
	struct upload *upload = user;
	char text[64];
	switch (status) {
	case APUS_OK:
		for (upload->length += len; len;) {
			ssize_t written = write(upload->file, data, len);
			if (written < 0)
				return end(deferred, upload, 507);
			data += written;
			len -= (size_t)written;
		}
		return 0;
	case APUS_END:
		if (fsync(upload->file) || rename(upload->part, upload->path))
			return end(deferred, upload, 507);
		snprintf(text, sizeof text, "%" PRIu64 " bytes\n", upload->length);
		apus_response_set_status(apus_deferred_response(deferred), 201);
		apus_response_text(apus_deferred_response(deferred), text, APUS_NTS);
		return end(deferred, upload, 0);
	default: /* It is too long, or the client is gone. */
		return end(deferred, upload, status == APUS_TOO_LARGE ? 413 : 400);
	}
}

static int begin(apus_request *request, apus_response *response, void *user)
{
	apus_str name = apus_request_param(request, "name");
	const char *folder = user;
	(void)response;
	/* A name is decoded: it may have slashes, and NULs. */
	if (!name.len || name.len > 100 || name.data[0] == '.' || memchr(name.data, '/', name.len) || memchr(name.data, 0, name.len))
		return 400;
	struct upload *upload = calloc(1, sizeof *upload);
	if (!upload)
		return 503;
	snprintf(upload->path, sizeof upload->path, "%s/%.*s", folder, (int)name.len, name.data);
	snprintf(upload->part, sizeof upload->part, "%s/.upload-XXXXXX", folder);
	upload->file = mkstemp(upload->part);
	if (upload->file < 0) {
		free(upload);
		return 507;
	}
	apus_deferred *deferred = apus_defer(request);
	if (apus_deferred_read(deferred, MOST_BYTES, write_part, upload) != APUS_OK)
		end(deferred, upload, 500);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS FOLDER\n", argv[0]);
		return 2;
	}
	apus_app *app = apus_app_new();
	apus_app_put(app, "/files/{name}", begin, argv[2]);
	apus_server *server = apus_server_new(app);
	apus_server_listen(server, argv[1]);
	apus_status status = apus_server_run(server);
	if (status != APUS_OK)
		fprintf(stderr, "%s\n", apus_last_error());
	apus_server_free(server);
	return status != APUS_OK;
}
