/* The response bodies of the embedded servers that are compared: files, read into memory once at the start. */
#ifndef BODIES_H
#define BODIES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct body {
	const char *path;
	const char *type;
	char *bytes;
	size_t length;
};

static struct body bodies[] = {
	{ "/12b.html", "text/html; charset=utf-8", NULL, 0 },
	{ "/1k.html", "text/html; charset=utf-8", NULL, 0 },
	{ "/10k.html", "text/html; charset=utf-8", NULL, 0 },
	{ "/100k.bin", "application/octet-stream", NULL, 0 },
};
enum { BODIES = sizeof bodies / sizeof *bodies };

/* Reads the files of this folder, or ends the program. */
static void read_bodies(const char *folder)
{
	for (struct body *body = bodies; body < bodies + BODIES; body++) {
		char path[4096];
		snprintf(path, sizeof path, "%s%s", folder, body->path);
		FILE *file = fopen(path, "rb");
		if (!file || fseek(file, 0, SEEK_END)) {
			perror(path);
			exit(1);
		}
		body->length = (size_t)ftell(file);
		body->bytes = malloc(body->length);
		rewind(file);
		if (!body->bytes || fread(body->bytes, 1, body->length, file) != body->length) {
			perror(path);
			exit(1);
		}
		fclose(file);
	}
}

#endif
