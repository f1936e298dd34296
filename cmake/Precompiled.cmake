# MOED_PRECOMPILE: the headers that nearly every file includes are read once for all libraries and once for all tests, which halves the
# time that a build from nothing takes. Off by default: only without it does the compiler see that a file includes what it uses.
option(MOED_PRECOMPILE "Precompile common headers" OFF)
if(MOED_PRECOMPILE)
  add_compile_options(-pthread)  # which some libraries ask for: precompiled headers must be read with the flags they were written with
endif()

set(MOED_COMMON_HEADERS
  <algorithm> <array> <functional> <map> <memory> <optional> <span> <string> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_format.h> <absl/synchronization/mutex.h>
  <nlohmann/json.hpp>)

# moed_precompile(TARGET KIND [HEADERS]): TARGET shares the headers of all targets of this KIND, which have the same flags. The first one
# of a kind makes a target that owns them.
function(moed_precompile target kind)
  if(NOT MOED_PRECOMPILE)
    return()
  endif()
  set(owner moed_precompiled_${kind})
  if(NOT TARGET ${owner})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${owner}.cc CONTENT "")
    add_library(${owner} STATIC ${CMAKE_BINARY_DIR}/${owner}.cc)
    get_target_property(options ${target} COMPILE_OPTIONS)
    if(options)
      target_compile_options(${owner} PRIVATE ${options})
    endif()
    get_target_property(libraries ${target} LINK_LIBRARIES)
    list(FILTER libraries INCLUDE REGEX "^GTest::")
    target_link_libraries(${owner} PRIVATE ${libraries})  # for their definitions
    target_precompile_headers(${owner} PRIVATE ${MOED_COMMON_HEADERS} ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
