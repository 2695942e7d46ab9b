/* The sizes and offsets of the structures of apus.h, on the machine that compiled it. */

#include <apus.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define OFFSET(type, member) printf(#type "." #member " %zu\n", offsetof(type, member))

int main(void) {
  SIZE(apus_str);
  SIZE(apus_field);
  SIZE(apus_error);
  OFFSET(apus_error, detail);
  OFFSET(apus_error, format);
  SIZE(apus_access_entry);
  OFFSET(apus_access_entry, version);
  OFFSET(apus_access_entry, body_bytes);
  OFFSET(apus_access_entry, outcome);
  SIZE(apus_files_options);
  OFFSET(apus_files_options, listing);
  OFFSET(apus_files_options, spa);
  OFFSET(apus_files_options, cache_bytes);
  SIZE(apus_websocket_events);
  OFFSET(apus_websocket_events, max_message);
  OFFSET(apus_websocket_events, no_compression);
  OFFSET(apus_websocket_events, protocols);
  SIZE(apus_allocator);
  SIZE(apus_status);
  return 0;
}
