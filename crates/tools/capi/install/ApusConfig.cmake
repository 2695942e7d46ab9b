# The package of libapus: Apus::apus is the shared library, Apus::static the static one.

get_filename_component(_apus_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET Apus::apus)
  add_library(Apus::apus SHARED IMPORTED)
  set_target_properties(Apus::apus PROPERTIES
    IMPORTED_LOCATION "${_apus_prefix}/lib/libapus.so.1"
    IMPORTED_SONAME "libapus.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${_apus_prefix}/include")
  add_library(Apus::static STATIC IMPORTED)
  set_target_properties(Apus::static PROPERTIES
    IMPORTED_LOCATION "${_apus_prefix}/lib/libapus.a"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m;gcc_s"
    INTERFACE_INCLUDE_DIRECTORIES "${_apus_prefix}/include")
endif()

set(Apus_FOUND TRUE)
