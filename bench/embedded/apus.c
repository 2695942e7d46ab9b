/* Bodies from memory with libapus: `apus PORT FOLDER`. */
#include "serve.h"

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	return serve(app_of_bodies(argv[2]), argv[1]);
}
